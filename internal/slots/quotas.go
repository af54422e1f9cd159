package slots

// Rest in [Quotas] stands for all tenants that have no quota of their own.
const Rest = "*"

// Quotas are how many of something a tenant may have at once, by tenant.
type Quotas map[string]int

// Of is the quota of a tenant, 0 where it has none.
func (q Quotas) Of(tenant string) int {
	if n, ok := q[tenant]; ok {
		return n
	}
	return q[Rest]
}
