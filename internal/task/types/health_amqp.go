package types

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
)

const (
	amqpHello = "AMQP\x00\x00\x09\x01" // of AMQP 0-9-1
	// amqpLongest bounds the broker's first frame, which says what it can do.
	amqpLongest = 64 << 10
	amqpEnd     = 0xCE
	// amqpStart is class and method of connection.start.
	amqpStart = 10<<16 | 10
)

// probeAMQP begins to speak AMQP and is content when the broker begins too, or
// says that it would rather speak another version. It logs in nowhere.
func probeAMQP(ctx context.Context, p *probe) error {
	return p.talk(ctx, func(c net.Conn, r *bufio.Reader) error {
		if _, err := io.WriteString(c, amqpHello); err != nil {
			return err
		}
		var head [7]byte // kind, channel, size; or the beginning of another hello
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return err
		}
		if string(head[:4]) == amqpHello[:4] {
			return nil
		}
		size := binary.BigEndian.Uint32(head[3:])
		if head[0] != 1 || head[1] != 0 || head[2] != 0 || size < 4 || size > amqpLongest {
			return p.unwell("it does not speak AMQP")
		}
		frame := make([]byte, size+1)
		if _, err := io.ReadFull(r, frame); err != nil {
			return err
		}
		if binary.BigEndian.Uint32(frame) != amqpStart || frame[size] != amqpEnd {
			return p.unwell("it does not begin as an AMQP broker does")
		}
		return nil
	})
}
