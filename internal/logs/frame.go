package logs

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// A log is a row of frames: a header and the bytes of one record.
//
//	checksum  4 bytes  of all that follows, CRC-32C, begun with the log's seed
//	time      8 bytes  Unix time in nanoseconds, never less than the one before
//	length    2 bytes  of the data
//	stream    1 byte
//	data
//
// Numbers are little-endian. The first frame opens the log; its data are a
// magic and the seed: four random bytes, so that nothing a step prints can look
// like a frame. The last closes it. A frame that is cut short or does not match
// its checksum was being written when the worker died: the log ends before it.
const (
	headerSize = 15
	// maxFrame is the most that one frame takes. It fits a chunk of the tail.
	maxFrame   = 16 << 10
	maxPayload = maxFrame - headerSize
)

// The kinds of frame that are no records. No stream has these numbers.
const (
	opening Stream = 'B'
	closing Stream = 'E'
)

const (
	magic       = "belay log 1\n"
	openingSize = headerSize + len(magic) + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frame is one frame of a log; data points into what it was parsed from.
type frame struct {
	time   int64
	stream Stream
	data   []byte
}

func (f frame) size() int { return headerSize + len(f.data) }

// appendHeader begins a frame whose data follow; seal completes it.
func appendHeader(b []byte, stream Stream, at int64) []byte {
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	b = binary.LittleEndian.AppendUint16(b, 0)
	return append(b, byte(stream))
}

// seal completes the frame that b consists of.
func seal(b []byte, seed uint32) {
	binary.LittleEndian.PutUint16(b[12:], uint16(len(b)-headerSize))
	binary.LittleEndian.PutUint32(b, crc32.Update(seed, castagnoli, b[4:]))
}

// appendFrame adds a whole frame.
func appendFrame(b []byte, seed uint32, stream Stream, at int64, data string) []byte {
	start := len(b)
	b = append(appendHeader(b, stream, at), data...)
	seal(b[start:], seed)
	return b
}

// newSeed draws the seed of a log.
func newSeed() uint32 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint32(b[:])
}

// appendOpening adds the frame that opens a log. It has a seed of 0 itself.
func appendOpening(b []byte, seed uint32, at int64) []byte {
	return appendFrame(b, 0, opening, at, magic+string(binary.LittleEndian.AppendUint32(nil, seed)))
}

var (
	// errShort says that the bytes end before the frame does.
	errShort = errors.New("the frame is not complete")
	// errDamaged says that the bytes are no frame.
	errDamaged = errors.New("not a frame")
)

// frameSize is how long the frame at the start of b is, by its header.
func frameSize(b []byte) int { return headerSize + int(binary.LittleEndian.Uint16(b[12:])) }

// parse reads the frame at the start of b.
func parse(b []byte, seed uint32) (frame, error) {
	if len(b) < headerSize {
		return frame{}, errShort
	}
	size := frameSize(b)
	if size > maxFrame {
		return frame{}, errDamaged
	}
	if len(b) < size {
		return frame{}, errShort
	}
	b = b[:size]
	if crc32.Update(seed, castagnoli, b[4:]) != binary.LittleEndian.Uint32(b) {
		return frame{}, errDamaged
	}
	at := int64(binary.LittleEndian.Uint64(b[4:]))
	return frame{time: at, stream: Stream(b[14]), data: b[headerSize:]}, nil
}

// parseOpening reads the frame that opens a log and yields its seed.
func parseOpening(b []byte) (frame, uint32, error) {
	f, err := parse(b, 0)
	if err != nil {
		return frame{}, 0, err
	}
	if f.stream != opening || f.size() != openingSize || string(f.data[:len(magic)]) != magic {
		return frame{}, 0, errDamaged
	}
	return f, binary.LittleEndian.Uint32(f.data[len(magic):]), nil
}
