package api

import (
	"crypto/sha256"
	"hash/maphash"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"belay.run/internal/config"
)

const (
	// wrongBurst is how many wrong tokens an address may send at once, and one more
	// each wrongEvery.
	wrongBurst = 10
	wrongEvery = 6 * time.Second
	// addressSlots is how many addresses are told apart: those that share a slot
	// share its bucket. So there is nothing to forget, and no more than that.
	addressSlots = 4096
	// networkBits of an address of IPv6 are one customer's.
	networkBits = 64
	// goodMost is how many tokens a slot remembers that were right.
	goodMost = 64
)

// attempts bounds how many tokens can be tried from one address. Its zero value
// has a clock still to be set.
type attempts struct {
	now func() time.Time

	mu    sync.Mutex
	slots map[uint64]*slot
	seed  maphash.Seed
}

// slot is what is known of an address.
type slot struct {
	wrong *rate.Limiter
	// good are tokens that were right from there, by their hash. They are taken
	// in any case: else whoever guesses behind a proxy would lock out all others
	// who come through it.
	good map[[sha256.Size]byte]bool
}

// find is whose token one is. It tells how long to wait where too many from that
// address were wrong: nothing is said of the token then, right or wrong.
func (a *attempts) find(known *Tokens, remote, presented string) (t config.HTTPToken, ok bool, wait time.Duration) {
	t, ok = known.find(presented)
	sum := sha256.Sum256([]byte(presented))
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.slot(remote)
	if ok && s.good[sum] {
		return t, true, 0
	}
	now := a.now()
	if left := s.wrong.TokensAt(now); left < 1 {
		return config.HTTPToken{}, false, max(time.Duration((1-left)*float64(wrongEvery)), time.Second)
	}
	if !ok {
		s.wrong.AllowN(now, 1)
		return config.HTTPToken{}, false, 0
	}
	if len(s.good) < goodMost {
		s.good[sum] = true
	}
	return t, true, 0
}

func (a *attempts) slot(remote string) *slot {
	if a.slots == nil {
		a.slots, a.seed = map[uint64]*slot{}, maphash.MakeSeed()
	}
	at := maphash.String(a.seed, network(remote)) % addressSlots
	s := a.slots[at]
	if s == nil {
		s = &slot{wrong: rate.NewLimiter(rate.Every(wrongEvery), wrongBurst), good: map[[sha256.Size]byte]bool{}}
		a.slots[at] = s
	}
	return s
}

// network is what of an address one client has to itself.
func network(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if addr = addr.Unmap().WithZone(""); addr.Is4() {
		return addr.String()
	}
	p, err := addr.Prefix(networkBits)
	if err != nil {
		return addr.String()
	}
	return p.String()
}
