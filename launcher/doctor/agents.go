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

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// Bounds of what an agent may take.
const (
	reportTime = 15 * time.Second
	peersTime  = 20 * time.Second // an agent bounds each peer by 12 s
)

// askAgents asks the agents, and lets them dial each other.
func (e *examination) askAgents(ctx context.Context) error {
	_ = e.stage(ctx, e.placed, e.recipe.FindAddresses, (*visit).unaddressed)
	tally := e.recipe.Printer.NewTally("asking agents", len(e.placed))
	secret := make([]byte, 32)
	rand.Read(secret) // never fails
	if err := eachVisit(ctx, e.placed, tally, func(i int, v *visit) {
		v.meet(ctx, protocol.Checkup{Secret: secret, Index: i, PortLow: e.cfg.PortLow, PortHigh: e.cfg.PortHigh})
	}); err != nil {
		return err
	}
	return e.exchange(ctx)
}

// unaddressed notes why the host has no data address.
func (v *visit) unaddressed(err error) {
	text := inBrackets().ReplaceAllString(err.Error(), "") // addresses, which differ from host to host
	v.failed(Network, exit.WithHint(errors.New(text), exit.Hint(err)), "addr=IP or nic=NAME on its line of the resource file chooses its data address")
}

var inBrackets = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` \([^()]*\)`) })

// meet takes the agent's report.
func (v *visit) meet(ctx context.Context, want protocol.Checkup) {
	if !v.has(Network) { // else the agent has no address on which it could serve
		want.Addr, _ = v.DataAddr()
	}
	asked := time.Now()
	report, err := hosts.Call[protocol.HostReport](ctx, v.AgentHost, reportTime, protocol.DoCheckup, want)
	if err != nil {
		v.failed(Agent, fmt.Errorf("plx does not run there: %w", err), "run it by hand: ~/"+v.Binary+" version")
		return
	}
	v.agentReport = &report
	if v.facts = factsOf(report, asked, time.Now()); v.facts != nil {
		v.judge(*v.facts)
	}
}

// exchange lets each host dial two others.
func (e *examination) exchange(ctx context.Context) error {
	var serving []*visit
	for _, v := range e.placed {
		if v.agentReport != nil && v.agentReport.Addr != "" {
			serving = append(serving, v)
		}
	}
	peers, pairs := make([][]protocol.Peer, len(serving)), 0
	for i := range serving {
		for _, to := range dials(i, len(serving)) {
			v := serving[to]
			peers[i] = append(peers[i], protocol.Peer{Index: slices.Index(e.placed, v), Host: v.host, Addr: v.agentReport.Addr})
			pairs++
		}
	}
	e.dialled = Dialled{len(serving), pairs}
	tally := e.recipe.Printer.NewTally("connecting hosts with each other", len(serving))
	return eachVisit(ctx, serving, tally, func(i int, v *visit) {
		if len(peers[i]) == 0 {
			return
		}
		failures, err := hosts.Call[[]protocol.CheckupFailure](ctx, v.AgentHost, peersTime, protocol.DoMeet, peers[i])
		if err != nil {
			v.failed(Agent, fmt.Errorf("its agent ended while it connected to other hosts: %w", err), "run plx doctor again")
			return
		}
		v.judgePeers(failures, peers[i])
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
func eachVisit(ctx context.Context, all []*visit, tally *console.Tally, work func(int, *visit)) error {
	return hosts.Each(ctx, all, func(i int, v *visit) error {
		tally.Begin(v.host)
		defer tally.End(v.host)
		work(i, v)
		return nil
	})
}
