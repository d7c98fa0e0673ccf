package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/coordinator"
	"github.com/plx-run/plx/launcher/protocol"
)

// renewEvery is how often the launcher renews leases until the chief's host
// has taken the job over.
const renewEvery = 2 * time.Second

// detach starts the agents, makes the one of the chief's host conduct, and
// waits until every task has started.
func (l *launch) detach(ctx context.Context) (int, error) {
	conns, peers, err := l.startAll(ctx)
	defer func() {
		for _, c := range conns {
			if c != nil {
				c.Close()
			}
		}
	}()
	if err != nil {
		l.endAll(conns, err)
		return CodePlx, err
	}
	chief := l.chief()
	visitor, err := l.stations[chief].visit(ctx)
	if err == nil {
		defer visitor.Close()
		err = conns[chief].Send(protocol.Message{Conduct: &protocol.Conduct{Plan: l.plan(), Peers: peers}})
	}
	if err != nil {
		l.endAll(conns, err)
		return CodePlx, fmt.Errorf("host %s: hand the job over: %w", l.stations[chief].host.Name, err)
	}
	return l.awaitStart(visitor)
}

// startAll starts every agent. Until its connections are closed their leases
// are renewed.
func (l *launch) startAll(ctx context.Context) ([]*protocol.Conn, []protocol.Peer, error) {
	conns := make([]*protocol.Conn, len(l.stations))
	peers := make([]protocol.Peer, len(l.stations))
	errs := make([]error, len(l.stations))
	var wg sync.WaitGroup
	for i, s := range l.stations {
		wg.Go(func() {
			conn, state, err := l.startOne(ctx, i)
			if err != nil {
				errs[i] = fmt.Errorf("host %s: %w", s.host.Name, err)
				return
			}
			conns[i], peers[i] = conn, protocol.Peer{Index: i, Host: s.host.Name, Addr: state.Addr}
		})
	}
	wg.Wait()
	return conns, peers, errors.Join(errs...)
}

func (l *launch) startOne(ctx context.Context, i int) (*protocol.Conn, protocol.State, error) {
	conn, err := l.start(ctx, i, l.stations[i], l.tasks(i))
	if err != nil {
		return nil, protocol.State{}, err
	}
	state, err := attach(conn, true)
	if err != nil {
		return nil, state, errors.Join(err, conn.Close())
	}
	go keep(conn)
	return conn, state, nil
}

// keep renews a lease until the connection is closed, by either side.
func keep(conn *protocol.Conn) {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			if _, err := conn.Receive(); err != nil {
				return
			}
		}
	}()
	tick := time.NewTicker(renewEvery)
	defer tick.Stop()
	for seq := int64(1); ; seq++ {
		if conn.Send(protocol.Message{Renew: &protocol.Renew{Seq: seq}}) != nil {
			return
		}
		select {
		case <-gone:
			return
		case <-tick.C:
		}
	}
}

// attach says who this connection is and returns the agent's state.
func attach(conn *protocol.Conn, conductor bool) (protocol.State, error) {
	if err := conn.Send(protocol.Message{Attach: &protocol.Attach{Conductor: conductor}}); err != nil {
		return protocol.State{}, err
	}
	for {
		m, err := conn.Receive()
		if err != nil {
			return protocol.State{}, err
		}
		if m.State != nil {
			return *m.State, nil
		}
	}
}

// visit connects to an agent as a visitor.
func (s *station) visit(ctx context.Context) (*protocol.Conn, error) {
	conn, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := conn.Send(protocol.Message{Attach: &protocol.Attach{}}); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// endAll ends the agents of a job that cannot be handed over, and waits until
// they are gone. Where that fails their leases end them.
func (l *launch) endAll(conns []*protocol.Conn, why error) {
	end := protocol.Message{End: &protocol.End{Verdict: protocol.Verdict{Code: CodePlx, Reason: why.Error()}}}
	for _, c := range conns {
		if c != nil {
			c.Send(end) // a failed one is left to its lease, as said above
		}
	}
	for i, c := range conns {
		if c == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), l.cfg.Lease)
		if err := l.stations[i].reap(ctx); err != nil {
			l.voice.say("host %s: %v", l.stations[i].host.Name, err)
		}
		cancel()
	}
}

// awaitStart follows the chief's agent until every task has started or the
// job is over.
func (l *launch) awaitStart(visitor *protocol.Conn) (int, error) {
	states := make(chan protocol.State)
	failed := make(chan error, 1)
	done := make(chan struct{})
	defer close(done)
	go receiveStates(visitor, states, failed, done)
	limit := time.NewTimer(l.cfg.StartTimeout + l.cfg.Lease)
	defer limit.Stop()
	stops := l.signals.conduct()
	for {
		select {
		case state := <-states:
			if state.Verdict != nil {
				return l.overAlready(*state.Verdict)
			}
			if state.JobPhase == protocol.Running {
				return l.detached()
			}
		case err := <-failed:
			if state, stateErr := l.stations[l.chief()].state(context.Background()); stateErr == nil && state.Verdict != nil {
				return l.overAlready(*state.Verdict)
			}
			return CodePlx, fmt.Errorf("host %s: lost the agent before every task had started: %w", l.stations[l.chief()].host.Name, err)
		case ask := <-stops:
			l.askStop(visitor, ask)
		case <-limit.C:
			return CodePlx, fmt.Errorf("job %s: not every task started within %s; it may still do: plx attach %s, plx stop %s", l.job, l.cfg.StartTimeout, l.job, l.job)
		}
	}
}

func receiveStates(conn *protocol.Conn, states chan<- protocol.State, failed chan<- error, done <-chan struct{}) {
	for {
		m, err := conn.Receive()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			failed <- err
			return
		}
		if m.State == nil {
			continue
		}
		select {
		case states <- *m.State:
		case <-done:
			return
		}
	}
}

func (l *launch) askStop(visitor *protocol.Conn, ask coordinator.StopAsked) {
	stop := protocol.Stop{Grace: ask.Grace, Reason: ask.Reason, Code: ask.Code}
	if err := visitor.Send(protocol.Message{Stop: &stop}); err != nil {
		l.voice.say("stop job %s: %v", l.job, err)
	}
}

// overAlready ends the launch of a job that did not last until it returned.
func (l *launch) overAlready(v protocol.Verdict) (int, error) {
	l.finish(v)
	l.report(v)
	if v.Code != 0 {
		return v.Code, nil
	}
	_, err := fmt.Fprintln(l.cfg.Terminal.Stdout, l.job)
	return 0, err
}

// detached tells where the job is to be found.
func (l *launch) detached() (int, error) {
	l.voice.say("job %s runs detached: plx logs -f, plx attach, plx stop", l.job)
	if _, err := fmt.Fprintln(l.cfg.Terminal.Stdout, l.job); err != nil {
		return CodePlx, fmt.Errorf("print the job's id: %w", err)
	}
	return 0, nil
}
