package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/transport"
)

// removeTime limits the removal of files on one host, which takes long on a
// slow disk. The time starts when the host has replied to the first request.
const removeTime = 10 * time.Minute

// find opens the jobs and collects their hosts without duplicates. It connects
// to no host.
func (p *pruner) find(ctx context.Context, old []Record) error {
	var errs []error
	for _, r := range old {
		j, err := p.open(ctx, r, p.printer, hosts.Reach{AcceptNewHostKeys: p.cfg.Reach.AcceptNewHostKeys})
		if err != nil {
			p.unchecked[r.Job] = true
			errs = append(errs, err)
			continue
		}
		fresh := false
		for i, a := range j.agents {
			h, is := p.note(r.Via, a.Host)
			if is {
				fresh, h.binaries = true, p.binaries[r.Hosts[i].Line]
			}
			p.of[r.Job] = append(p.of[r.Job], h)
		}
		if fresh {
			p.sets = append(p.sets, j.set)
		} else {
			j.close()
		}
	}
	return errors.Join(errs...)
}

// note returns the entry for a host. plx reaches the host by the command via,
// or by SSH if via is empty. If there is no entry, note adds one and returns
// fresh = true.
func (p *pruner) note(via string, host *hosts.Host) (h *pruneHost, fresh bool) {
	way := via + " " + host.Resource.String()
	h, known := p.known[way]
	if !known {
		h = &pruneHost{AgentHost: &hosts.AgentHost{Host: host}}
		p.hosts, p.known[way] = append(p.hosts, h), h
	}
	return h, !known
}

// survey asks all hosts what they could remove. No host removes anything yet.
func (p *pruner) survey(ctx context.Context) error {
	errs := []error{p.each(ctx, p.hosts, func(ctx context.Context, h *pruneHost) (err error) {
		h.plan, err = p.ask(ctx, h, nil, true)
		return err
	})}
	for _, h := range p.hosts {
		errs = append(errs, p.keepAll(h, h.plan))
	}
	return errors.Join(errs...)
}

// each calls work for several hosts at a time. If work fails for a host, each
// sets the host's field failed.
func (p *pruner) each(ctx context.Context, all []*pruneHost, work func(context.Context, *pruneHost) error) error {
	return hosts.Each(ctx, all, func(_ int, h *pruneHost) error {
		err := work(ctx, h)
		if err != nil {
			h.failed, err = true, fmt.Errorf("prune: %w", err)
		}
		return err
	})
}

// ask asks an agent on host h to remove old files, except for the jobs in
// keep. If dry is true, the agent only lists them. ask starts the newest agent
// executable that the host still has. On a host without jobs of this machine,
// it first installs this version of plx.
func (p *pruner) ask(ctx context.Context, h *pruneHost, keep []string, dry bool) ([]protocol.Pruned, error) {
	if p.cfg.All {
		return p.askAll(ctx, h, keep, dry)
	}
	binaries := h.binaries
	if len(binaries) == 0 {
		if there, err := p.meet(ctx, h); !there || err != nil {
			return nil, err
		}
		binaries = []string{h.Agent().Binary}
	}
	limit := p.limit(dry)
	ctx, cancel := within(ctx, limit)
	defer cancel()
	want := protocol.PruneRequest{Older: p.cfg.Older, Discard: p.cfg.Discard, Dry: dry, Keep: keep}
	for _, binary := range binaries {
		agent := &hosts.AgentHost{Host: h.Host, Binary: binary}
		answer, err := hosts.Call[protocol.PruneAnswer](ctx, agent, limit, protocol.DoPrune, want)
		if transport.ExitStatus(err) == hosts.NotFound {
			continue // this executable was removed by an earlier prune
		}
		if err == nil && answer.Failed != "" {
			err = errors.New(answer.Failed)
		}
		if err == nil && p.cfg.DryRun {
			err = agent.UpdateFacts(ctx) // learn on which file system the home directory is, so that a home directory that several hosts share is listed only once
		}
		return answer.Items, err
	}
	return nil, nil
}

// limit returns the time limit of a request to a host. dry says that the host
// removes nothing.
func (p *pruner) limit(dry bool) time.Duration {
	if dry {
		return p.answerTime
	}
	return removeTime
}

// keepAll records which jobs must be kept according to the reply of a host. It
// returns an error for each job whose output files the host cannot list.
func (p *pruner) keepAll(h *pruneHost, items []protocol.Pruned) error {
	var errs []error
	for _, item := range items {
		switch {
		case item.Unchecked != "":
			if !p.unchecked[item.Job] {
				errs = append(errs, h.Named(fmt.Errorf("cannot find out which files job %s made: %s", item.Job, item.Unchecked)))
			}
			p.unchecked[item.Job] = true
		case item.Outputs > 0 && !isRecord(item):
			p.keep(item, h.Facts.FileSystem)
		}
	}
	return errors.Join(errs...)
}

// removeOld removes the old files on all hosts, except for the jobs that are
// kept.
func (p *pruner) removeOld(ctx context.Context) error {
	var goes []*pruneHost
	keep := map[*pruneHost][]string{}
	for _, h := range p.hosts {
		if h.failed {
			continue
		}
		any := false
		for _, item := range h.plan {
			job, isJob := strings.CutPrefix(kindOf(item.Path), "job ")
			switch {
			case item.Outputs > 0:
			case isJob && p.stays(job):
				keep[h] = append(keep[h], job)
			default:
				any = true
			}
		}
		if any {
			goes = append(goes, h)
		}
	}
	errs := []error{p.each(ctx, goes, func(ctx context.Context, h *pruneHost) (err error) {
		if h.done = h.plan; !p.cfg.DryRun || len(keep[h]) > 0 {
			h.done, err = p.ask(ctx, h, keep[h], p.cfg.DryRun)
		}
		return err
	})}
	for _, h := range goes {
		errs = append(errs, p.keepAll(h, h.done))
		p.report(h, h.done)
	}
	return errors.Join(errs...)
}
