package launcher

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
)

// mostRounds is how often hosts are asked again that have removed what they had
// listed, as a job does that runs and makes other checkpoints.
const mostRounds = 5

// run fetches every checkpoint of which the hosts have all files. A host out of
// reach, and a checkpoint that cannot be fetched, is told of; it is an error
// where that is the newest of its folder, or where there is none at all.
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
		f.meter.clear()
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if r.gone && unreached == nil && n < mostRounds && !sameNewest(before, all) {
			before = all
			continue
		}
		for _, told := range r.older {
			f.voice.say("%s", told)
		}
		f.report(r.fetched)
		return errors.Join(r.newest...)
	}
}

func (f *fetcher) none(unreached error) error {
	if unreached != nil {
		return fmt.Errorf("no host that was reached has checkpoints under the name %s", f.name)
	}
	return fmt.Errorf("no host has checkpoints under the name %s, in ~/.plx/ckpt/%s", f.name, f.name)
}

// round is what came of the checkpoints that hosts listed.
type round struct {
	fetched int
	newest  []error  // of those that are the newest of their folder
	older   []string // of the others
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

// sameNewest reports whether two lists begin with the same checkpoint in every
// folder: asking again has shown nothing new.
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
