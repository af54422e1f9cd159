package secret

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
)

const (
	// Any in a grant is every tenant, or every secret.
	Any = "*"
	// Nowhere is where a secret goes that is only looked at.
	Nowhere = "-"
)

// Grant lets light tasks of a tenant use a secret.
type Grant struct {
	// Tenant and Secret are names, or Any.
	Tenant, Secret string
	// Host is the only one that the secret may be sent to: a name, an address, a
	// name such as *.example.com for all below it, or Nowhere. Empty: wherever the
	// task says. To be looked at without being sent is always granted.
	Host string
	// Port is the only one of Host; empty: all of them.
	Port string
}

// String is the grant as the setting light_secrets has it.
func (g Grant) String() string {
	text := g.Tenant + "=" + g.Secret
	switch {
	case g.Host == "":
		return text
	case g.Port != "":
		return text + "@" + net.JoinHostPort(g.Host, g.Port)
	}
	return text + "@" + g.Host
}

// names reports whether the grant is of that secret and tenant.
func (g Grant) names(tenant, name string) bool {
	return (g.Tenant == Any || g.Tenant == tenant) && (g.Secret == Any || g.Secret == name)
}

// reaches reports whether the grant lets a secret go there.
func (g Grant) reaches(to string) bool {
	if g.Host == "" || to == Nowhere {
		return true
	}
	host, port, err := net.SplitHostPort(to)
	if err != nil || !plainHost(host) || g.Port != "" && g.Port != port {
		return false
	}
	if g.Host == Nowhere {
		return false
	}
	if below, all := strings.CutPrefix(g.Host, "*"); all {
		return strings.HasSuffix(host, below) && len(host) > len(below)
	}
	return host == g.Host
}

// plainHost refuses hosts that mean another one by the time they are resolved,
// as the full stops of other scripts do.
func plainHost(host string) bool {
	return host != "" && !strings.ContainsFunc(host, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("-._:", r)
	})
}

// Use is a light task's wish to use a secret.
type Use struct {
	// Tenant is whose task it is.
	Tenant string
	// Listed are the secrets that a step lists, for which its pipeline answers:
	// those it may send anywhere, and no others. Nil: it is no step, and grants
	// decide.
	Listed []string
	// Name is that of the secret.
	Name string
	// To is the host:port that the secret is sent to, or Nowhere. Where it is empty
	// nobody has said, and no grant for one host holds.
	To string
}

// Vault hands secrets to the light tasks that may have them. It is their only way
// to them. It is safe for concurrent use.
type Vault struct {
	from   Provider
	grants []Grant
}

// NewVault returns a vault that opens for steps, and by grants for other tasks.
func NewVault(from Provider, grants ...Grant) *Vault {
	return &Vault{from: from, grants: slices.Clone(grants)}
}

// Get reads a secret for a task that may have it. Else it is a *RefusedError, and
// nothing is read.
func (v *Vault) Get(ctx context.Context, u Use) (Value, error) {
	if err := v.Check(u); err != nil {
		return Value{}, err
	}
	return v.from.Get(ctx, u.Name)
}

// Check returns a *RefusedError unless a task may use a secret as it wants to.
func (v *Vault) Check(u Use) error {
	if err := checkName(u.Name); err != nil {
		return err
	}
	if u.Listed != nil {
		if slices.Contains(u.Listed, u.Name) {
			return nil
		}
		return &RefusedError{Tenant: u.Tenant, Secret: u.Name, Step: true}
	}
	refused := &RefusedError{Tenant: u.Tenant, Secret: u.Name}
	for _, g := range v.grants {
		if !g.names(u.Tenant, u.Name) {
			continue
		}
		if g.reaches(u.To) {
			return nil
		}
		refused.To = u.To
	}
	return refused
}

// Granted returns a *RefusedError where tasks of a tenant that are no steps may
// not use a secret at all, wherever they send it.
func (v *Vault) Granted(tenant, name string) error {
	return v.Check(Use{Tenant: tenant, Name: name, To: Nowhere})
}

// RefusedError says that a task may not use a secret, and what would let it.
type RefusedError struct {
	Tenant, Secret string
	// To is where it may not be sent, where it may be sent elsewhere.
	To string
	// Step says that a step does not list it.
	Step bool
}

// Error names the setting, the tenant and the secret.
func (e *RefusedError) Error() string {
	switch {
	case e.Step:
		return fmt.Sprintf("the step does not list the secret %s: add it to its secrets", e.Secret)
	case e.To != "":
		return fmt.Sprintf("the tenant %s may not send the secret %s to %.200s: the worker's setting light_secrets would have to hold %s=%s@%.200s",
			e.Tenant, e.Secret, e.To, e.Tenant, e.Secret, e.To)
	}
	return fmt.Sprintf("the tenant %s may not use the secret %s in batches and requests: the worker's setting light_secrets would have to hold %s=%s",
		e.Tenant, e.Secret, e.Tenant, e.Secret)
}
