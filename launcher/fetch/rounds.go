package fetch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
)

// mostRounds is how often hosts are asked. A running job makes new checkpoints and
// removes old ones, also such that a host has just listed.
const mostRounds = 5

// run fetches what the hosts list, and asks them again if a newest checkpoint was
// removed meanwhile.
func (f *fetcher) run(ctx context.Context) error {
	for n, before := 1, []checkpoint(nil); ; n++ {
		lists, unreached := f.list(ctx)
		if err := context.Cause(ctx); err != nil {
			return err
		}
		all := gather(lists)
		if len(all) == 0 {
			return f.none(unreached)
		}
		r := f.round(ctx, all)
		f.bar.Clear()
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if r.gone && unreached == nil && n < mostRounds && !sameNewest(before, all) {
			before = all
			continue
		}
		for _, told := range r.older {
			f.from.Printer.Printf("%s", told)
		}
		f.report(r.fetched)
		return errors.Join(r.newest...)
	}
}

func (f *fetcher) none(unreached error) error {
	if unreached != nil {
		return fmt.Errorf("no host that was reached has checkpoints under the name %s", f.from.Name)
	}
	return fmt.Errorf("no host has checkpoints under the name %s, in ~/.plx/ckpt/%s", f.from.Name, f.from.Name)
}

// round is the result of fetching what the hosts listed once.
type round struct {
	fetched int
	newest  []error  // of checkpoints that are the newest of their folder
	older   []string // notices of the other checkpoints that could not be fetched
	gone    bool     // a newest one may have been removed by the job
}

func (f *fetcher) round(ctx context.Context, all []checkpoint) (r round) {
	f.announce(all)
	folder := ""
	for _, c := range all {
		newest := path.Dir(c.folder) != folder
		folder = path.Dir(c.folder)
		err := f.checkpoint(ctx, c)
		switch {
		case ctx.Err() != nil:
			return r
		case err == nil:
			r.fetched++
		case newest:
			r.newest = append(r.newest, fmt.Errorf("checkpoint %s, the newest: %w", c.folder, err))
			r.gone = r.gone || !errors.As(err, new(ownFault))
		default:
			r.older = append(r.older, fmt.Sprintf("checkpoint %s: not fetched: %v", c.folder, err))
		}
	}
	return r
}

// sameNewest reports whether two lists have the same newest checkpoint in every folder.
// Then asking once more shows nothing new.
func sameNewest(a, b []checkpoint) bool {
	newest := func(all []checkpoint) map[string]string {
		first := map[string]string{}
		for _, c := range slices.Backward(all) {
			first[path.Dir(c.folder)] = c.folder
		}
		return first
	}
	return maps.Equal(newest(a), newest(b))
}
