package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plx-run/plx/launcher/conductor"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/trainer/cluster"
)

// conduct makes this agent the conductor of its job: it dials itself and the
// other agents, and runs the job to its verdict.
func (s *supervisor) conduct(m protocol.Conduct) {
	if s.conducts != nil || s.ending != nil {
		return
	}
	s.conducts = make(chan struct{})
	s.state.JobPhase = protocol.Idle
	s.changed = true
	hosts := make([]conductor.Host, len(m.Peers))
	for i, peer := range m.Peers {
		hosts[i] = conductor.Host{Name: peer.Host, Dial: s.dialler(peer)}
	}
	opts := conductor.Options{
		Lease:   s.spec.Lease,
		OnPhase: func(p protocol.Phase) { s.do(func() { s.state.JobPhase = p; s.changed = true }) },
		OnNote:  func(text string) { s.log.Print(text) },
		OnLay: func(generation int, hosts []protocol.HostPlan) {
			s.do(func() { s.state.Laid = &protocol.Layout{Generation: generation, Hosts: hosts}; s.changed = true })
		},
		Join: func(index int, j protocol.Joining) conductor.Host {
			return conductor.Host{Name: j.Host, Dial: s.dialler(protocol.Peer{Index: index, Host: j.Host, Addr: j.Addr})}
		},
	}
	go func() {
		defer close(s.conducts)
		v, err := conductor.Run(context.Background(), m.Plan, hosts, opts)
		s.do(func() { s.conducted(v, err) })
	}()
}

// conducted ends this host's part when its conductor has failed to.
func (s *supervisor) conducted(v protocol.Verdict, err error) {
	if err != nil {
		s.log.Printf("conduct the job: %v", err)
	}
	if v.Reason == "" {
		v = protocol.Verdict{Code: codePlx, Host: s.spec.Host, Reason: fmt.Sprintf("host %s: conduct the job: %v", s.spec.Host, err)}
	}
	s.end(v, s.spec.Grace, "the job's conductor failed")
}

// dialler returns how the agent of peer is reached from here.
func (s *supervisor) dialler(peer protocol.Peer) func(context.Context) (*protocol.Conn, error) {
	if peer.Index == s.spec.HostIndex {
		name := s.state.Socket
		return func(ctx context.Context) (*protocol.Conn, error) {
			conn, err := dialLocal(ctx, name)
			if err != nil {
				return nil, absent(err)
			}
			return openWithin(ctx, conn)
		}
	}
	key, self := cluster.PeerKey(s.spec.Secret, 0), agentName(s.spec.HostIndex)
	return func(ctx context.Context) (*protocol.Conn, error) {
		conn, err := dialPeer(ctx, key, self, peer)
		if err != nil {
			return nil, absent(err)
		}
		return openWithin(ctx, conn)
	}
}

// openWithin exchanges the greeting in bounded time.
func openWithin(ctx context.Context, raw net.Conn) (*protocol.Conn, error) {
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(time.Unix(1, 0)) })
	raw.SetDeadline(time.Now().Add(greeting)) // a closed one fails at its first use
	conn, err := protocol.Open(raw)
	if err != nil {
		stop()
		return nil, err
	}
	if !stop() {
		return nil, errors.Join(ctx.Err(), conn.Close())
	}
	return conn, raw.SetDeadline(time.Time{})
}

// absent marks the error of a host that answered and has no agent any more.
func absent(err error) error {
	if errors.Is(err, unix.ECONNREFUSED) {
		return fmt.Errorf("%w: %w", conductor.ErrNoAgent, err)
	}
	return err
}
