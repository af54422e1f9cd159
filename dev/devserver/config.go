package devserver

import (
	"context"
	"fmt"
	"net"

	"go.temporal.io/server/common/cluster"
	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/membership/static"
	"go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	"go.temporal.io/server/common/primitives"

	"belay.run/dev/ports"
)

const (
	loopback    = "127.0.0.1"
	clusterName = "active"
)

// layout is where the services of one server listen.
type layout struct {
	frontend  string // as clients reach it
	addresses map[primitives.ServiceName]string
	services  map[string]config.Service
	ports     []*ports.Port
}

// plan finds a port for each service: the wanted one for the frontend, free
// ones for those that only talk to one another.
func plan(ctx context.Context, ip string, port int) (*layout, error) {
	l := &layout{
		addresses: map[primitives.ServiceName]string{},
		services:  map[string]config.Service{},
	}
	for _, name := range []primitives.ServiceName{
		primitives.FrontendService, primitives.HistoryService, primitives.MatchingService, primitives.WorkerService,
	} {
		bind, want := loopback, 0
		if name == primitives.FrontendService {
			bind, want = ip, port
		}
		p, err := ports.Take(ctx, "Temporal", "--port", bind, want)
		if err != nil {
			l.release()
			return nil, err
		}
		l.ports = append(l.ports, p)
		l.addresses[name] = ports.Join(bind, p.Number)
		l.services[string(name)] = config.Service{RPC: config.RPC{GRPCPort: p.Number, BindOnIP: bind}}
	}
	l.frontend = l.addresses[primitives.FrontendService]
	return l, nil
}

// release lets go of the ports once the services listen on them, or never will.
func (l *layout) release() {
	for _, p := range l.ports {
		p.Release()
	}
}

// hosts are the addresses in place of a membership protocol: one process has
// no members to find, and starts faster without looking for them.
func (l *layout) hosts() map[primitives.ServiceName]static.Hosts {
	hosts := make(map[primitives.ServiceName]static.Hosts, len(l.addresses))
	for name, addr := range l.addresses {
		hosts[name] = static.SingleLocalHost(addr)
	}
	return hosts
}

func (l *layout) config(db *config.SQL) *config.Config {
	const off = "disabled"
	return &config.Config{
		Persistence: config.Persistence{
			DefaultStore:     sqlite.PluginName,
			VisibilityStore:  sqlite.PluginName,
			NumHistoryShards: 1,
			DataStores:       map[string]config.DataStore{sqlite.PluginName: {SQL: db}},
		},
		ClusterMetadata: &cluster.Config{
			FailoverVersionIncrement: 10,
			MasterClusterName:        clusterName,
			CurrentClusterName:       clusterName,
			ClusterInformation: map[string]cluster.ClusterInformation{
				clusterName: {Enabled: true, InitialFailoverVersion: 1, RPCAddress: l.frontend},
			},
		},
		DCRedirectionPolicy: config.DCRedirectionPolicy{Policy: "noop"},
		Services:            l.services,
		PublicClient:        config.PublicClient{HostPort: l.frontend},
		Archival: config.Archival{
			History:    config.HistoryArchival{State: off},
			Visibility: config.VisibilityArchival{State: off},
		},
		NamespaceDefaults: config.NamespaceDefaults{Archival: config.ArchivalNamespaceDefaults{
			History:    config.HistoryArchivalNamespaceDefaults{State: off},
			Visibility: config.VisibilityArchivalNamespaceDefaults{State: off},
		}},
	}
}

// checkIP refuses an address to listen on that the server would only stumble
// over later.
func checkIP(ip string) error {
	if net.ParseIP(ip) == nil {
		return fmt.Errorf("%q is no IP address to listen on: want for example 127.0.0.1 or 0.0.0.0", ip)
	}
	return nil
}
