package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// handOver launches a detached job. It starts the agents, makes the agent of the chief's
// host the driver, and waits until every task has started.
func (l *launch) handOver(ctx context.Context) (int, error) {
	var starts []hosts.Start
	for i, a := range l.agents {
		spec, err := l.spec(i, a, l.placed.Hosts[i].Specs())
		if err != nil {
			return exit.CodePlx, a.Named(err)
		}
		starts = append(starts, hosts.Start{Agent: a, Spec: spec})
	}
	group := hosts.NewGroup(starts)
	defer group.Close()
	if err := group.Start(ctx); err != nil {
		l.endGroup(group, err)
		return exit.CodePlx, err
	}
	chief := l.chief()
	visitor, err := l.agents[chief].Visit(ctx)
	if err == nil {
		defer visitor.Close()
		var peers []protocol.Peer
		for i, a := range l.agents {
			peers = append(peers, protocol.Peer{Index: i, Host: a.Name(), Addr: group.Addrs[i]})
		}
		err = group.Conns[chief].Send(protocol.Message{Drive: &protocol.Drive{Plan: l.plan(), Peers: peers}})
	}
	if err != nil {
		l.endGroup(group, err)
		return exit.CodePlx, l.agents[chief].Named(fmt.Errorf("hand the job over: %w", err))
	}
	return l.awaitStart(visitor)
}

// endGroup ends the agents of a job that could not be handed over. If that fails, their
// leases end them.
func (l *launch) endGroup(group *hosts.Group, why error) {
	if err := group.End(protocol.Verdict{Code: exit.CodePlx, Reason: why.Error()}, l.cfg.Lease); err != nil {
		l.printer.Error(err)
	}
}

// awaitStart follows the chief's agent until every task has started or the job has
// ended.
func (l *launch) awaitStart(visitor *protocol.Conn) (int, error) {
	states := make(chan protocol.State)
	failed := make(chan error, 1)
	done := make(chan struct{})
	defer close(done)
	go receiveStates(visitor, states, failed, done)
	limit := time.NewTimer(l.cfg.StartTimeout + l.cfg.Lease)
	defer limit.Stop()
	stops := l.signals.listen()
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
			if state, stateErr := l.agents[l.chief()].State(context.Background()); stateErr == nil && state.Verdict != nil {
				return l.overAlready(*state.Verdict)
			}
			return exit.CodePlx, l.agents[l.chief()].Named(fmt.Errorf("lost the agent before every task had started: %w", err))
		case ask := <-stops:
			stop := protocol.Stop{Grace: ask.Grace, Reason: ask.Reason, Code: ask.Code}
			if err := visitor.Send(protocol.Message{Stop: &stop}); err != nil {
				l.printer.Printf("stop job %s: %v", l.job, err)
			}
		case <-limit.C:
			return exit.CodePlx, fmt.Errorf("job %s: not every task started within %s; it may start later: plx attach %s, plx stop %s", l.job, l.cfg.StartTimeout, l.job, l.job)
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

// overAlready ends the launch of a job that has ended before Launch returned.
func (l *launch) overAlready(v protocol.Verdict) (int, error) {
	l.report(l.record(), v)
	if v.Code != 0 {
		return v.Code, nil
	}
	_, err := fmt.Fprintln(l.cfg.Terminal.Stdout, l.job)
	return 0, err
}

// detached prints how to find the job.
func (l *launch) detached() (int, error) {
	l.printer.Printf("job %s runs detached: plx logs -f, plx attach, plx stop", l.job)
	if _, err := fmt.Fprintln(l.cfg.Terminal.Stdout, l.job); err != nil {
		return exit.CodePlx, fmt.Errorf("print the job's id: %w", err)
	}
	return 0, nil
}
