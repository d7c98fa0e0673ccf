package launcher

import (
	"context"
	"sync/atomic"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/conductor"
	"github.com/plx-run/plx/launcher/protocol"
)

// join is how the conductor reaches a host that plx scale has started an agent
// on: by this launcher's own SSH, as the host's line says.
func (l *launch) join(ctx context.Context, out *output) func(int, protocol.Joining) conductor.Host {
	return func(i int, j protocol.Joining) conductor.Host {
		s, err := l.newStation(ctx, j)
		l.stations, l.lost, l.joined = append(l.stations, s), append(l.lost, new(atomic.Bool)), append(l.joined, j)
		if err != nil {
			return conductor.Host{Name: j.Host, Dial: func(context.Context) (*protocol.Conn, error) { return nil, &noStart{err} }}
		}
		return l.host(ctx, out, i, s, j.Tasks)
	}
}

// newStation reads what an agent passed on: it may make nothing be run here or
// there but an agent.
func (l *launch) newStation(ctx context.Context, j protocol.Joining) (s *station, err error) {
	unreached := func(context.Context) (transport, error) { return nil, err }
	none := &station{remote: newRemote(hostfile.Host{Name: j.Host}, unreached, false), job: l.job}
	host, err := readHost(j.HostPlan)
	if err != nil {
		return none, err
	}
	f, err := openFleet(ctx, Reach{Hosts: []hostfile.Host{host}, AcceptNewHostKeys: l.cfg.AcceptNewHostKeys}, l.voice)
	l.fleet.remotes, l.fleet.clusters = append(l.fleet.remotes, f.remotes...), append(l.fleet.clusters, f.clusters...)
	if err != nil {
		return none, err
	}
	return &station{remote: f.remotes[0], job: l.job, folder: j.Folder, binary: j.Binary}, nil
}
