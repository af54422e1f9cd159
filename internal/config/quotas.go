package config

import (
	"fmt"
	"strconv"
	"strings"

	"belay.run/internal/run"
	"belay.run/internal/slots"
)

// maxQuota is more than any group keeps in its queue.
const maxQuota = 100_000

// quotas reads TENANT=NUMBER.
func quotas(field func(*Config) *slots.Quotas) func(*Config, value) error {
	return func(c *Config, v value) error {
		all := slots.Quotas{}
		for _, item := range v.items() {
			tenant, number, _ := strings.Cut(item, "=")
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 || n > maxQuota || tenant != slots.Rest && !run.ValidScope(tenant) {
				return fmt.Errorf("%q: want TENANT=NUMBER, with * or a tenant of %s, and a number from 1 to %d", item, run.ScopeWords, maxQuota)
			}
			if _, twice := all[tenant]; twice {
				return fmt.Errorf("%q: %s has a number already", item, tenant)
			}
			all[tenant] = n
		}
		*field(c) = all
		return nil
	}
}
