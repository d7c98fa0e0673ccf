package launcher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/jobstate"
	"github.com/plx-run/plx/launcher/protocol"
)

// handover is a detached job: this process starts the agents, and hands the job over to
// the agent of the chief's host, which drives it.
type handover struct{ launch *launch }

// run starts the agents, makes the agent of the chief's host the driver, and waits
// until every task has started.
func (h *handover) run(ctx context.Context) (int, error) {
	var starts []hosts.Start
	for i, a := range h.launch.agents {
		spec, err := h.launch.spec(i, a, h.launch.placed.Hosts[i].Specs())
		if err != nil {
			return exit.CodePlx, a.Named(err)
		}
		starts = append(starts, hosts.Start{Agent: a, Spec: spec})
	}
	group := hosts.NewGroup(starts)
	defer group.Close()
	if err := group.Start(ctx); err != nil {
		h.endGroup(group, err)
		return exit.CodePlx, err
	}
	chief := h.launch.chief()
	visitor, err := h.launch.agents[chief].Visit(ctx)
	if err == nil {
		defer visitor.Close()
		var peers []protocol.Peer
		for i, a := range h.launch.agents {
			peers = append(peers, protocol.Peer{Index: i, Host: a.Name(), Addr: group.Addrs[i]})
		}
		err = group.Conns[chief].Send(protocol.Message{Drive: &protocol.Drive{Plan: h.launch.plan(), Peers: peers}})
	}
	if err != nil {
		h.endGroup(group, err)
		return exit.CodePlx, h.launch.agents[chief].Named(fmt.Errorf("hand the job over: %w", err))
	}
	return h.awaitStart(visitor)
}

// endGroup ends the agents of a job that could not be handed over. If that fails, their
// leases end them.
func (h *handover) endGroup(group *hosts.Group, why error) {
	if err := group.End(protocol.Verdict{Code: exit.CodePlx, Reason: why.Error()}, h.launch.cfg.Lease); err != nil {
		h.launch.printer.Error(err)
	}
}

// awaitStart follows the chief's agent until every task has started or the job has
// ended.
func (h *handover) awaitStart(visitor *protocol.Conn) (int, error) {
	states := make(chan protocol.State)
	failed := make(chan error, 1)
	done := make(chan struct{})
	defer close(done)
	go receiveStates(visitor, states, failed, done)
	limit := time.NewTimer(h.launch.cfg.StartTimeout + h.launch.cfg.Lease)
	defer limit.Stop()
	stops := h.launch.signals.listen()
	for {
		select {
		case state := <-states:
			if state.Verdict != nil {
				return h.overAlready(*state.Verdict)
			}
			if state.JobPhase == protocol.Running {
				return h.detached()
			}
		case err := <-failed:
			if state, stateErr := h.launch.agents[h.launch.chief()].State(context.Background()); stateErr == nil && state.Verdict != nil {
				return h.overAlready(*state.Verdict)
			}
			return exit.CodePlx, h.launch.agents[h.launch.chief()].Named(fmt.Errorf("lost the agent before every task had started: %w", err))
		case ask := <-stops:
			h.askStop(visitor, ask)
		case <-limit.C:
			return exit.CodePlx, fmt.Errorf("job %s: not every task started within %s; it may start later: plx attach %s, plx stop %s", h.launch.job, h.launch.cfg.StartTimeout, h.launch.job, h.launch.job)
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

func (h *handover) askStop(visitor *protocol.Conn, ask jobstate.StopAsked) {
	stop := protocol.Stop{Grace: ask.Grace, Reason: ask.Reason, Code: ask.Code}
	if err := visitor.Send(protocol.Message{Stop: &stop}); err != nil {
		h.launch.printer.Printf("stop job %s: %v", h.launch.job, err)
	}
}

// overAlready ends the launch of a job that has ended before Launch returned.
func (h *handover) overAlready(v protocol.Verdict) (int, error) {
	h.launch.report(h.launch.record(), v)
	if v.Code != 0 {
		return v.Code, nil
	}
	_, err := fmt.Fprintln(h.launch.cfg.Terminal.Stdout, h.launch.job)
	return 0, err
}

// detached prints how to find the job.
func (h *handover) detached() (int, error) {
	h.launch.printer.Printf("job %s runs detached: plx logs -f, plx attach, plx stop", h.launch.job)
	if _, err := fmt.Fprintln(h.launch.cfg.Terminal.Stdout, h.launch.job); err != nil {
		return exit.CodePlx, fmt.Errorf("print the job's id: %w", err)
	}
	return 0, nil
}
