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

// Time limits for replies of an agent, which is plx's process on a host.
const (
	reportTime = 15 * time.Second
	peersTime  = 20 * time.Second // longer than 12 s, which is the agent's own timeout for a connection to another host
)

// askAgents requests a report from each host's agent (plx's process on the
// host). Then it makes the agents test connections to each other.
func (e *examination) askAgents(ctx context.Context) error {
	_ = e.stage(ctx, e.placed, e.recipe.FindAddresses, (*visit).unaddressed)
	tally := e.recipe.Printer.NewHostProgress("asking agents", len(e.placed))
	secret := make([]byte, 32)
	rand.Read(secret) // crypto/rand.Read never fails
	if err := eachVisit(ctx, e.placed, tally, func(i int, v *visit) {
		v.requestReport(ctx, protocol.Checkup{Secret: secret, Index: i, PortLow: e.cfg.PortLow, PortHigh: e.cfg.PortHigh})
	}); err != nil {
		return err
	}
	return e.connectPeers(ctx)
}

// unaddressed adds the finding that the host has no data address, at which the
// tasks of other hosts could reach it.
func (v *visit) unaddressed(err error) {
	// Remove the addresses, which differ between hosts, so that equal findings
	// can be merged.
	text := inBrackets().ReplaceAllString(err.Error(), "")
	v.addError(Network, exit.WithHint(errors.New(text), exit.Hint(err)), "addr=IP or nic=NAME on its line of the resource file chooses its data address")
}

var inBrackets = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(` \([^()]*\)`) })

// requestReport requests the report of the agent (plx's process on the host)
// and adds the findings from it.
func (v *visit) requestReport(ctx context.Context, want protocol.Checkup) {
	if !v.has(Network) { // after a Network error, the agent has no address to listen on
		want.Addr, _ = v.DataAddr()
	}
	asked := time.Now()
	report, err := hosts.Call[protocol.HostReport](ctx, v.AgentHost, reportTime, protocol.DoCheckup, want)
	if err != nil {
		v.addError(Agent, fmt.Errorf("plx does not run there: %w", err), "run it by hand: ~/"+v.Binary+" version")
		return
	}
	v.agentReport = &report
	if v.facts = factsOf(report, asked, time.Now()); v.facts != nil {
		v.judge(*v.facts)
	}
}

// connectPeers lets each agent (plx's process on a host) connect to at most
// two other hosts, at the addresses that tasks would use.
func (e *examination) connectPeers(ctx context.Context) error {
	var serving []*visit
	for _, v := range e.placed {
		if v.agentReport != nil && v.agentReport.Addr != "" {
			serving = append(serving, v)
		}
	}
	peers, pairs := make([][]protocol.Peer, len(serving)), 0
	for i := range serving {
		for _, to := range peersToDial(i, len(serving)) {
			v := serving[to]
			peers[i] = append(peers[i], protocol.Peer{Index: slices.Index(e.placed, v), Host: v.host, Addr: v.agentReport.Addr})
			pairs++
		}
	}
	e.dials = DialCounts{len(serving), pairs}
	tally := e.recipe.Printer.NewHostProgress("connecting hosts with each other", len(serving))
	return eachVisit(ctx, serving, tally, func(i int, v *visit) {
		if len(peers[i]) == 0 {
			return
		}
		failures, err := hosts.Call[[]protocol.CheckupFailure](ctx, v.AgentHost, peersTime, protocol.DoMeet, peers[i])
		if err != nil {
			v.addError(Agent, fmt.Errorf("its agent ended while it connected to other hosts: %w", err), "run plx doctor again")
			return
		}
		v.judgePeers(failures, peers[i])
	})
}

// peersToDial returns the hosts that host i of n must connect to. The first is
// the next host, so that each host is tested. The second is host 0, which all
// workers need. The total number of connections is linear in n.
func peersToDial(i, n int) (to []int) {
	if next := (i + 1) % n; next != i {
		to = append(to, next)
	}
	if i != 0 && !slices.Contains(to, 0) {
		to = append(to, 0)
	}
	return to
}

// eachVisit calls work for all visits concurrently. It returns an error only
// if ctx ends.
func eachVisit(ctx context.Context, all []*visit, tally *console.HostProgress, work func(int, *visit)) error {
	return hosts.Each(ctx, all, func(i int, v *visit) error {
		tally.Begin(v.host)
		defer tally.End(v.host)
		work(i, v)
		return nil
	})
}
