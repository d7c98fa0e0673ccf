package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/plx-run/plx/internal/plural"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// maxRounds is the maximum number of times that plx asks the hosts for their
// lists. A running job writes new checkpoints and removes old ones, so a
// listed checkpoint can be gone when plx fetches it.
const maxRounds = 5

// checkpoints fetches every checkpoint of which the hosts together have all
// files. If the newest checkpoint of a folder was removed in the meantime,
// checkpoints asks the hosts for new lists. It prints which hosts it cannot
// reach and which checkpoints it cannot fetch. It returns an error if the
// newest checkpoint of a folder cannot be fetched, or if there is no
// checkpoint.
func (f *fetcher) checkpoints(ctx context.Context) error {
	f.bar = f.from.Printer.NewTransfer("fetching")
	defer f.bar.Close()
	t := newTally("")
	for n, before := 1, []string(nil); ; n++ {
		lists, unreached := f.listCheckpoints(ctx)
		if err := context.Cause(ctx); err != nil {
			return err
		}
		all := gather(lists)
		if len(all) == 0 && unreached != nil {
			return errNone{fmt.Errorf("no host that was reached has checkpoints under the name %s", f.from.Name), true}
		}
		if len(all) == 0 {
			return errNone{error: fmt.Errorf("no host has checkpoints under the name %s, in ~/.plx/ckpt/%s", f.from.Name, f.from.Name)}
		}
		r := f.round(ctx, all, t)
		if err := context.Cause(ctx); err != nil {
			return err
		}
		// Ask the hosts again only if the job may have removed a newest
		// checkpoint, every host was reached, and the newest checkpoints have
		// changed since the last time.
		if r.gone && unreached == nil && n < maxRounds && !slices.Equal(before, r.first) {
			before = r.first
			continue
		}
		f.bar.Close()
		for _, told := range r.older {
			f.from.Printer.Printf("%s", told)
		}
		f.summarise(t, plural.Count(r.fetched, "checkpoint"), f.from.Name, f.from.Dir)
		return errors.Join(r.newest...)
	}
}

// listCheckpoints asks every host for its list of checkpoints. It prints which
// hosts it cannot reach.
func (f *fetcher) listCheckpoints(ctx context.Context) (lists [][]protocol.HostCheckpoint, err error) {
	lists = make([][]protocol.HostCheckpoint, len(f.from.Hosts))
	return lists, hosts.Each(ctx, f.from.Hosts, func(i int, a *hosts.AgentHost) error {
		var all []protocol.HostCheckpoint
		if err := list(ctx, a, protocol.FetchRequest{Checkpoints: f.from.Name}, listOf(&all)); err != nil {
			if ctx.Err() == nil { // report the error only if the user has not interrupted plx
				f.from.Printer.Error(a.Named(fmt.Errorf("its checkpoints are not fetched: %w", err)))
			}
			return err
		}
		for _, k := range all {
			if k.Damage != "" {
				f.from.Printer.Printf("host %s: checkpoint %s: its manifest is unreadable: %s", a.Name(), k.Folder, k.Damage)
			}
		}
		lists[i] = all
		return nil
	})
}

// round is the result of one attempt to fetch the checkpoints. In each round,
// the hosts are asked for new lists.
type round struct {
	fetched int      // number of checkpoints that were fetched
	first   []string // name of the newest checkpoint of each folder
	newest  []error  // errors of newest checkpoints that were not fetched, at most one per folder; nil if all were fetched
	older   []string // messages about older checkpoints that could not be fetched
	gone    bool     // true if a newest checkpoint was not fetched; perhaps the job has removed it
}

func (f *fetcher) round(ctx context.Context, all []checkpoint, t *tally) (r round) {
	var files []file
	for _, c := range all {
		if c.missing == "" {
			files = append(files, c.files...)
		}
	}
	f.expect(files)
	folder := ""
	for _, c := range all {
		newest := path.Dir(c.folder) != folder
		if newest {
			folder = path.Dir(c.folder)
			r.first = append(r.first, c.folder)
		}
		err := f.checkpoint(ctx, c, t)
		switch {
		case ctx.Err() != nil:
			return r
		case err == nil:
			r.fetched++
		case isFull(err):
			r.newest = []error{f.full()}
			return r
		case newest:
			r.newest = append(r.newest, fmt.Errorf("checkpoint %s, the newest: %w", c.folder, err))
			r.gone = r.gone || !errors.As(err, new(localError))
		default:
			r.older = append(r.older, fmt.Sprintf("checkpoint %s: not fetched: %v", c.folder, err))
		}
	}
	return r
}

// checkpoint fetches the files of one checkpoint, the manifest last. For each
// file it starts with another host, to spread the load.
func (f *fetcher) checkpoint(ctx context.Context, c checkpoint, t *tally) error {
	if c.missing != "" {
		return errors.New(c.missing)
	}
	last := len(c.files) - 1
	for i, w := range c.files[:last] {
		turn := i % len(w.from)
		c.files[i].from = slices.Concat(w.from[turn:], w.from[:turn])
	}
	if err := cmp.Or(f.all(ctx, c.files[:last], t)...); err != nil {
		return err
	}
	return f.get(ctx, c.files[last], t)
}
