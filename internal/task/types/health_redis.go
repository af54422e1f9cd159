package types

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
)

// probeRedis sends PING, after AUTH where there is a secret. It speaks the
// protocol itself: a client would bring its pool, its retries and its own
// handshake to the one line that is asked.
func probeRedis(ctx context.Context, p *probe) error {
	return p.talk(ctx, func(c net.Conn, r *bufio.Reader) error {
		if p.auth.secret != "" {
			words := []string{"AUTH"}
			if user := p.url.User.Username(); user != "" {
				words = append(words, user)
			}
			if err := p.redis(c, r, "+OK", append(words, strings.TrimSpace(p.token.Reveal()))...); err != nil {
				return err
			}
		}
		return p.redis(c, r, "+PONG", "PING")
	})
}

// redis sends a command and expects a line for an answer.
func (p *probe) redis(c net.Conn, r *bufio.Reader, want string, words ...string) error {
	var command strings.Builder
	fmt.Fprintf(&command, "*%d\r\n", len(words))
	for _, w := range words {
		fmt.Fprintf(&command, "$%d\r\n%s\r\n", len(w), w)
	}
	if _, err := io.WriteString(c, command.String()); err != nil {
		return err
	}
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return p.unwell("it does not speak as Redis does")
	}
	if err != nil {
		return err
	}
	answer := strings.TrimRight(string(line), "\r\n")
	code, _, _ := strings.Cut(answer, " ")
	switch {
	case answer == want:
		return nil
	case code == "-NOAUTH" && p.auth.secret == "":
		return p.refused("it demands a password: give it as `secret`")
	case slices.Contains([]string{"-NOAUTH", "-WRONGPASS", "-NOPERM", "-DENIED"}, code),
		code == "-ERR" && words[0] == "AUTH":
		return p.refused("it refuses %s: %s", words[0], answer)
	case strings.HasPrefix(answer, "-"):
		return p.unwell("it answers %s with %s", words[0], answer)
	}
	return p.unwell("it does not speak as Redis does")
}
