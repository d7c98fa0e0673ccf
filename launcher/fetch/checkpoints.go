package fetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// checkpoints fetches every checkpoint of which the hosts have all files. It reports a
// host that is out of reach and a checkpoint that cannot be fetched. It is an error if
// that is the newest checkpoint of its folder, or if there is no checkpoint at all.
func checkpoints(ctx context.Context, r Request) error {
	f := newFetcher(r)
	defer f.bar.Close()
	return f.run(ctx)
}

// mostRounds is how often hosts are asked. A running job makes new checkpoints and
// removes old ones, also such that a host has just listed.
const mostRounds = 5

// run fetches what the hosts list, and asks them again if a newest checkpoint was
// removed meanwhile.
func (f *fetcher) run(ctx context.Context) error {
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
		r := f.round(ctx, all)
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if r.gone && unreached == nil && n < mostRounds && !slices.Equal(before, r.first) { // else asking once more shows nothing new
			before = r.first
			continue
		}
		f.bar.Close()
		for _, told := range r.older {
			f.from.Printer.Printf("%s", told)
		}
		f.summarise(console.Count(r.fetched, "checkpoint"), f.from.Name, f.from.Dir)
		return errors.Join(r.newest...)
	}
}

// listCheckpoints asks every host for its checkpoints. It reports hosts that are out of reach.
func (f *fetcher) listCheckpoints(ctx context.Context) (lists [][]protocol.HostCheckpoint, err error) {
	lists = make([][]protocol.HostCheckpoint, len(f.from.Hosts))
	return lists, hosts.Each(ctx, f.from.Hosts, func(i int, a *hosts.AgentHost) error {
		var all []protocol.HostCheckpoint
		if err := list(ctx, a, protocol.FetchRequest{Checkpoints: f.from.Name}, listOf(&all)); err != nil {
			if ctx.Err() == nil { // else the user has left
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

// checkpoint fetches the files of a checkpoint, the manifest last.
func (f *fetcher) checkpoint(ctx context.Context, c checkpoint) error {
	if c.missing != "" {
		return errors.New(c.missing)
	}
	if err := os.MkdirAll(filepath.Join(f.from.Dir, filepath.FromSlash(c.folder)), 0o777); err != nil {
		return ownFault{err}
	}
	last := len(c.files) - 1
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, file := range c.files[:last] {
		g.Go(func() error { return f.file(ctx, c.folder, file, i) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return f.file(ctx, c.folder, c.files[last], 0)
}

// round is the result of fetching what the hosts listed once.
type round struct {
	fetched int      // number of checkpoints that were fetched
	first   []string // names of the newest checkpoint of each folder
	newest  []error  // errors of checkpoints that are the newest of their folder; nil: all were fetched
	older   []string // notices of other checkpoints that could not be fetched
	gone    bool     // a newest checkpoint was not fetched, perhaps because the job removed it meanwhile
}

func (f *fetcher) round(ctx context.Context, all []checkpoint) (r round) {
	for _, c := range all { // so that the progress bar knows the sizes of all files
		for _, file := range c.files {
			if c.missing == "" {
				f.bar.Moved("", path.Join(c.folder, file.Name), 0, file.Size)
			}
		}
	}
	folder := ""
	for _, c := range all {
		newest := path.Dir(c.folder) != folder
		if newest {
			folder = path.Dir(c.folder)
			r.first = append(r.first, c.folder)
		}
		err := f.checkpoint(ctx, c)
		switch {
		case ctx.Err() != nil:
			return r
		case err == nil:
			r.fetched++
		case isFull(err):
			r.newest = []error{f.full(f.missing(all))}
			return r
		case newest:
			r.newest = append(r.newest, fmt.Errorf("checkpoint %s, the newest: %w", c.folder, err))
			r.gone = r.gone || !errors.As(err, new(ownFault))
		default:
			r.older = append(r.older, fmt.Sprintf("checkpoint %s: not fetched: %v", c.folder, err))
		}
	}
	return r
}
