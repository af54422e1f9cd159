package types

import (
	"bufio"
	"context"
	"net"
	"slices"
	"strings"
)

// bannerMost is how much of what a service says first is looked at.
const bannerMost = 16 << 10

// probeTCP connects, and reads on until the service has said what is expected.
func probeTCP(ctx context.Context, p *probe) error {
	return p.talk(ctx, func(_ net.Conn, r *bufio.Reader) error {
		var said strings.Builder
		missing := slices.Clone(p.texts)
		for len(missing) > 0 {
			if said.Len() >= bannerMost {
				return p.refused("the first %d bytes that it says do not hold the expected %.64q", bannerMost, missing[0])
			}
			b, err := r.ReadByte()
			if err != nil {
				return err
			}
			said.WriteByte(b)
			missing = slices.DeleteFunc(missing, func(text string) bool { return strings.HasSuffix(said.String(), text) })
		}
		return nil
	})
}
