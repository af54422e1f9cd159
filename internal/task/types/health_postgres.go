package types

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
)

const (
	postgresVersion = 3 << 16
	// postgresLongest bounds a message. An error or a demand for a password has
	// some hundred bytes.
	postgresLongest = 32 << 10
)

// probePostgres begins a session and is content when it is asked who it is, as
// pg_isready is: whoever answers so takes connections. It logs in nowhere, so it
// needs no password.
func probePostgres(ctx context.Context, p *probe) error {
	return p.talk(ctx, func(c net.Conn, r *bufio.Reader) error {
		user, database := p.url.User.Username(), strings.Trim(p.url.Path, "/")
		if user == "" {
			user = "belay"
		}
		words := []string{"user", user, "application_name", "belay"}
		if database != "" {
			words = append(words, "database", database)
		}
		body := binary.BigEndian.AppendUint32(make([]byte, 4), postgresVersion)
		for _, w := range words {
			body = append(append(body, w...), 0)
		}
		body = append(body, 0)
		binary.BigEndian.PutUint32(body, uint32(len(body)))
		if _, err := c.Write(body); err != nil {
			return err
		}
		kind, message, err := p.postgresMessage(r)
		if err != nil {
			return err
		}
		switch kind {
		case 'R', 'N', 'v': // it asks who we are, or remarks on it
			return nil
		case 'E':
			return p.postgresError(message)
		}
		return p.unwell("it does not speak as PostgreSQL does")
	})
}

func (p *probe) postgresMessage(r *bufio.Reader) (kind byte, message []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n < 4 || n > postgresLongest {
		return 0, nil, p.unwell("it does not speak as PostgreSQL does")
	}
	message = make([]byte, n-4)
	_, err = io.ReadFull(r, message)
	return head[0], message, err
}

// postgresError tells a server that takes no connections from one that only
// does not take ours, which is well.
func (p *probe) postgresError(message []byte) error {
	var code, text string
	for field := range strings.SplitSeq(string(message), "\x00") {
		switch {
		case strings.HasPrefix(field, "C"):
			code = field[1:]
		case strings.HasPrefix(field, "M"):
			text = field[1:]
		}
	}
	class := ""
	if len(code) == 5 {
		class = code[:2]
	}
	switch class {
	case "": // no code at all
		return p.unwell("it does not speak as PostgreSQL does")
	case "53", "57", "58", "XX": // no room, shutting down or starting, broken
		return p.unwell("it takes no connections: %s (%s)", text, code)
	}
	return nil
}
