package jobs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/plx-run/plx/launcher/exit"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/submission"
	"github.com/plx-run/plx/launcher/transport"
)

// placeTime bounds the copying of plx's executable to a host that has another
// version of plx.
const placeTime = 5 * time.Minute

// findMore adds the hosts that the user named. plx may have files on them
// although this machine launched no job there. With All, findMore also adds
// this machine.
func (p *pruner) findMore(ctx context.Context) error {
	var errs []error
	add := func(reach hosts.Reach, here bool) {
		set, err := p.cfg.connect(ctx, reach, p.printer)
		p.sets, errs = append(p.sets, set), append(errs, err)
		for _, host := range set.Hosts {
			h, _ := p.note(reach.Via, host)
			h.here = h.here || here
		}
	}
	if len(p.cfg.Reach.Hosts) > 0 {
		add(p.cfg.Reach, false)
	}
	if !p.cfg.All {
		return errors.Join(errs...)
	}
	root, err := home()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if _, err := os.Stat(root); err == nil && runtime.GOOS == "linux" {
		add(hosts.Reach{LocalHosts: 1, LocalWorkers: 1}, true)
	}
	return errors.Join(errs...)
}

// home returns the path of ~/.plx on this machine.
func home() (string, error) {
	jobs, err := submission.Root()
	return filepath.Dir(jobs), err
}

// askAll asks the agent on host h to remove the whole ~/.plx, except for the
// jobs in keep and other things that must stay. If dry is true, the agent
// removes nothing. On a host without ~/.plx, askAll does nothing. After a
// removal, askAll disconnects from the agent. If the agent stayed, it would
// count as a use of plx on other hosts with the same home directory.
func (p *pruner) askAll(ctx context.Context, h *pruneHost, keep []string, dry bool) ([]protocol.Pruned, error) {
	if !dry {
		defer h.Release()
	}
	if there, err := p.meet(ctx, h); !there || err != nil {
		return nil, err
	}
	limit := p.limit(dry)
	removing, cancel := within(ctx, limit)
	defer cancel()
	answer, err := hosts.Call[protocol.PruneAnswer](removing, h.Agent(), limit, protocol.DoPrune,
		protocol.PruneRequest{Discard: p.cfg.Discard, Dry: dry, Keep: keep, All: true, Forgotten: p.forgotten})
	h.busy = answer.Busy
	if err == nil && answer.Rest != "" {
		h.Release()
		answer.Failed = removeRest(removing, h, answer)
	}
	if err == nil && answer.Failed != "" {
		err = errors.New(answer.Failed)
	}
	return answer.Items, err
}

// meet starts an agent of this plx version on the host and connects to the
// agent. If the host has no ~/.plx, meet starts no agent and returns there =
// false.
func (p *pruner) meet(ctx context.Context, h *pruneHost) (there bool, err error) {
	asking, cancel := within(ctx, p.answerTime)
	defer cancel()
	if err := h.Run(asking, `[ -e "$HOME/.plx" ]`, nil, nil, nil); err != nil {
		if transport.ExitStatus(err) == 1 {
			err = nil
		}
		return false, err
	}
	placing, cancel := within(ctx, placeTime)
	defer cancel()
	return true, h.Survey(placing)
}

// removeRest removes with a shell command what the agent could not remove
// while it ran, such as its own executable on a network file system. It
// returns the text of an error, or "".
func removeRest(ctx context.Context, h *pruneHost, answer protocol.PruneAnswer) string {
	name, marked := strings.CutPrefix(answer.Rest, ".")
	if !marked || !hosts.IsSafe(name) {
		return answer.Failed
	}
	script := fmt.Sprintf(`cd "$HOME" && rm -rf .plx/.%s && { [ -L .plx ] || rmdir .plx 2>/dev/null || :; }`, name)
	if err := h.Script(ctx, script, nil, nil); err != nil {
		return err.Error()
	}
	return ""
}

// removeAll removes the whole ~/.plx from every host, and from a shared home
// directory once. It removes this machine's ~/.plx last, because the records
// in it are still needed if another host keeps files.
func (p *pruner) removeAll(ctx context.Context, old []Record) error {
	for _, set := range p.sets {
		// Disconnect first: an agent refuses to remove a ~/.plx that another
		// agent uses.
		set.Release()
	}
	busy := p.busy(p.hosts)
	representatives, last := p.representatives()
	errs := []error{busy, p.remove(ctx, representatives), p.forget(old), p.submissions(ctx)}
	if last != nil {
		errs = append(errs, p.remove(ctx, []*pruneHost{last}))
	}
	if runtime.GOOS != "linux" && errors.Join(errs...) == nil {
		errs = append(errs, p.removeHere())
	}
	err := errors.Join(errs...)
	if err == nil && !p.cfg.DryRun && len(p.kept)+len(p.unchecked) == 0 {
		p.printer.Printf("kept your own files: defaults (plx config), host keys in ~/.ssh, and this program")
	}
	return err
}

// busy finds the hosts on which a process uses plx, and marks the jobs there
// as in use. It returns one error for each home directory with such a process.
func (p *pruner) busy(all []*pruneHost) error {
	homes := map[string]bool{}
	var errs []error
	for _, h := range all {
		if h.busy == "" {
			continue
		}
		for job, on := range p.of {
			if slices.Contains(on, h) {
				p.inUse[job] = true
			}
		}
		if !homes[h.Facts.FileSystem] {
			homes[h.Facts.FileSystem] = true
			err := fmt.Errorf("nothing is removed: %s", h.busy)
			if h.Embedded {
				err = fmt.Errorf("this machine: %w", err)
			} else {
				err = h.Named(err)
			}
			errs = append(errs, exit.WithHint(err, "plx stop JOB ends a job; then plx prune --all again"))
		}
		h.failed = true
	}
	return errors.Join(errs...)
}

// representatives returns one host for each home directory whose ~/.plx is to
// be removed, because hosts may share a home directory. here is the host for
// this machine's home directory, or nil.
func (p *pruner) representatives() (representatives []*pruneHost, here *pruneHost) {
	skip, own := map[string]bool{}, ""
	for _, h := range p.hosts {
		skip[h.Facts.FileSystem] = skip[h.Facts.FileSystem] || h.busy != ""
		if h.here {
			own = h.Facts.FileSystem
		}
	}
	for _, h := range p.hosts {
		switch home := h.Facts.FileSystem; {
		case h.failed || home == "" || skip[home]:
			continue
		case home != own:
			representatives = append(representatives, h)
		case here == nil || h.here:
			here = h
			continue
		default:
			continue
		}
		skip[h.Facts.FileSystem] = true // skip other hosts with this home directory
	}
	return representatives, here
}

// remove removes the whole ~/.plx from the given hosts, except for the folders
// of jobs that must stay, such as running ones.
func (p *pruner) remove(ctx context.Context, all []*pruneHost) error {
	var keep []string
	for job := range p.of {
		if p.stays(job) {
			keep = append(keep, job)
		}
	}
	errs := []error{p.each(ctx, all, func(ctx context.Context, h *pruneHost) (err error) {
		h.done, err = p.ask(ctx, h, keep, p.cfg.DryRun)
		return err
	}), p.busy(all)}
	for _, h := range all {
		errs = append(errs, p.keepAll(h, h.done))
		for _, item := range h.done {
			if isRecord(item) && !h.here {
				p.keep(item, h.Facts.FileSystem)
			}
		}
		p.report(h, h.done)
	}
	return errors.Join(errs...)
}

// isRecord reports whether a kept item is a job's record, which exists on the
// host from which the job was launched.
func isRecord(item protocol.Pruned) bool {
	return item.Job == "" && strings.HasPrefix(item.Path, "jobs/") && path.Ext(item.Path) == ".json"
}

// removeHere removes ~/.plx of this machine if its system is not Linux and so
// cannot run agents.
func (p *pruner) removeHere() error {
	root, err := home()
	if err != nil {
		return err
	}
	rs, err := submission.Folders()
	if err != nil || len(rs) > 0 {
		return err // keep ~/.plx as long as it has records of jobs
	}
	if p.cfg.DryRun {
		p.table.Row(here, root, "")
		return nil
	}
	begun, err := launchings()
	if err == nil && len(begun) > 0 {
		err = fmt.Errorf("%s is not removed: %s is being launched", root, begun[0].label())
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(root)
}
