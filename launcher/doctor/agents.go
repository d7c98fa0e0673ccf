package doctor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/provision"
)

// Bounds of what an agent may take.
const (
	reportTime = 15 * time.Second
	peersTime  = 20 * time.Second // an agent bounds each peer by 12 s
)

// askAgents asks the agents, and lets them dial each other.
func (e *examination) askAgents(ctx context.Context) error {
	var with []*visit
	for _, v := range e.visits {
		if v.ready {
			v.agent = v.host.Agent()
			with = append(with, v)
		}
	}
	if err := e.chooseAddresses(ctx, with); err != nil {
		return err
	}
	tally := e.printer.NewTally("asking agents", len(with))
	defer tally.Stop()
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	if err := eachVisit(ctx, with, func(i int, v *visit) {
		tally.Begin(v.notes.host)
		defer tally.End(v.notes.host)
		want := protocol.Checkup{Secret: secret, Index: i, PortLow: e.cfg.PortLow, PortHigh: e.cfg.PortHigh}
		v.meet(ctx, want)
	}); err != nil {
		return err
	}
	return e.exchange(ctx, with)
}

// chooseAddresses finds the data addresses of all hosts, on the interfaces that the user
// chose if any.
func (e *examination) chooseAddresses(ctx context.Context, with []*visit) error {
	var targets []*provision.Target
	for _, v := range with {
		targets = append(targets, &provision.Target{AgentHost: v.agent})
	}
	_ = (&provision.Recipe{}).FindAddresses(ctx, targets) // each target has its error
	for i, t := range targets {
		if t.Err != nil {
			with[i].lose(t.Err)
		}
	}
	return context.Cause(ctx)
}

// lose notes why the host has no data address.
func (v *visit) lose(err error) {
	v.lost = true
	text := inBrackets().ReplaceAllString(err.Error(), "") // addresses, which differ from host to host
	v.notes.failed(Network, exit.WithHint(errors.New(text), exit.Hint(err)), "addr=IP or nic=NAME on its line of the resource file chooses its data address")
}

var inBrackets = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` \([^()]*\)`) })

// meet takes the agent's report.
func (v *visit) meet(ctx context.Context, want protocol.Checkup) {
	if !v.lost {
		want.Addr, _ = v.host.DataAddr() // else chooseAddresses has said why
	}
	asked := time.Now()
	report, err := hosts.Call[protocol.HostReport](ctx, v.agent, reportTime, protocol.DoCheckup, want)
	if err != nil {
		v.notes.failed(Agent, fmt.Errorf("plx does not run there: %w", err), "run it by hand: ~/"+v.agent.Binary+" version")
		return
	}
	v.agentReport = &report
	if v.facts = factsOf(report, exchange{asked, time.Now()}); v.facts != nil {
		v.notes.judge(*v.facts)
	}
}

// exchange lets each host dial two others.
func (e *examination) exchange(ctx context.Context, with []*visit) error {
	var serving []*visit
	for _, v := range with {
		if v.agentReport != nil && v.agentReport.Addr != "" {
			serving = append(serving, v)
		}
	}
	tally := e.printer.NewTally("connecting hosts with each other", len(serving))
	defer tally.Stop()
	peers, pairs := make([][]protocol.Peer, len(serving)), 0
	for i := range serving {
		for _, to := range dials(i, len(serving)) {
			v := serving[to]
			index := slices.Index(with, v)
			peers[i] = append(peers[i], protocol.Peer{Index: index, Host: v.notes.host, Addr: v.agentReport.Addr})
			pairs++
		}
	}
	e.dialled = Dialled{len(serving), pairs}
	return eachVisit(ctx, serving, func(i int, v *visit) {
		if len(peers[i]) == 0 {
			return
		}
		tally.Begin(v.notes.host)
		defer tally.End(v.notes.host)
		failures, err := hosts.Call[[]protocol.CheckupFailure](ctx, v.agent, peersTime, protocol.DoMeet, peers[i])
		if err != nil {
			v.notes.failed(Agent, fmt.Errorf("its agent ended while it connected to other hosts: %w", err), "run plx doctor again")
			return
		}
		v.notes.judgePeers(failures, peers[i])
	})
}

// dials returns which hosts of n the host i dials: the next one, so that each host is
// dialled, and the first, which all workers need. That is linear in the number of hosts.
func dials(i, n int) (to []int) {
	if next := (i + 1) % n; next != i {
		to = append(to, next)
	}
	if i != 0 && !slices.Contains(to, 0) {
		to = append(to, 0)
	}
	return to
}

// eachVisit works on visits side by side. Its error is that of ctx.
func eachVisit(ctx context.Context, all []*visit, work func(int, *visit)) error {
	return hosts.Each(ctx, all, func(i int, v *visit) error {
		work(i, v)
		return nil
	})
}

// Named puts the host's name before an error.
func (v *visit) Named(err error) error { return v.host.Named(err) }
