package depot

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/plx-run/plx/trainer/checkpoint"
	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/peers"
)

// Choose decides what all tasks go on from: the newest checkpoint that fits
// says nothing against and of which every file is held by some task, with the
// right sum. It returns nil where there is no checkpoint; where there are some
// and none is good, an error says why of each. The chief calls it once.
func (d *Depot) Choose(ctx context.Context, fits func(*checkpoint.Manifest) error) (*checkpoint.Manifest, error) {
	c := d.chief
	if c == nil {
		return nil, errors.New("checkpoints: only the chief chooses one")
	}
	found, err := c.choose(ctx, fits)
	m := message{Kind: chosen, Holders: found.holders}
	if err == nil && found.manifest != nil {
		m.Body, err = found.manifest.Encode()
	}
	if err != nil {
		m.Err, m.Body = string(peers.EncodeReport(err)), nil
	}
	c.tell(m)
	c.mu.Lock()
	c.decided, c.fresh = true, len(m.Body) == 0
	c.release()
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return d.Chosen(ctx)
}

// choose goes from the newest checkpoint down.
func (c *chief) choose(ctx context.Context, fits func(*checkpoint.Manifest) error) (choice, error) {
	places, err := c.places(ctx)
	if err != nil {
		return choice{}, err
	}
	var bad []string
	for _, candidate := range checkpoint.Candidates(places) {
		found, err := c.try(ctx, candidate, fits)
		if err == nil {
			return found, nil
		}
		if ctx.Err() != nil {
			return choice{}, err
		}
		c.config.logf(slog.LevelWarn, "skipped: %v", err)
		if !candidate.Unfinished {
			bad = append(bad, err.Error())
		}
	}
	if bad != nil {
		return choice{}, fmt.Errorf("no checkpoint is good to go on from: %s", strings.Join(bad, "; "))
	}
	c.config.logf(slog.LevelInfo, "there is no checkpoint to go on from, the training begins anew")
	return choice{}, nil
}

// places returns what is held, by group: its first task speaks for it.
func (c *chief) places(ctx context.Context) ([]checkpoint.Place, error) {
	known := map[[2]string]*checkpoint.Manifest{} // by checkpoint and sum
	var places []checkpoint.Place
	c.mu.Lock()
	groups := c.here()
	c.mu.Unlock()
	for _, group := range groups {
		m := group[0]
		place := checkpoint.Place{Task: m.task, Host: c.config.host(m.task)}
		for _, a := range m.holding {
			h := checkpoint.Held{ID: a.ID, Damage: a.Damage, Files: a.Files}
			if key := [2]string{a.ID, a.Manifest}; a.Manifest != "" {
				var err error
				if known[key] == nil {
					known[key], err = c.fetch(ctx, m, a)
				}
				if err != nil {
					h.Damage = err.Error()
				}
				h.Manifest = known[key]
			}
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			place.Holding = append(place.Holding, h)
		}
		places = append(places, place)
	}
	return places, nil
}

// fetch gets a manifest from a task that has it.
func (c *chief) fetch(ctx context.Context, from *member, a announced) (*checkpoint.Manifest, error) {
	m, err := c.ask(ctx, from, message{Kind: fetch, ID: a.ID}, c.config.patience(maxManifest))
	if err != nil {
		return nil, err
	}
	if sumOf(m.Body) != a.Manifest {
		return nil, errors.New("the manifest has changed since it was announced")
	}
	return checkpoint.DecodeManifest(m.Body)
}

// try says why a checkpoint is not the one to go on from.
func (c *chief) try(ctx context.Context, candidate checkpoint.Candidate, fits func(*checkpoint.Manifest) error) (choice, error) {
	if candidate.Missing != "" {
		return choice{}, errors.New(candidate.Missing)
	}
	m := candidate.Manifest
	if err := fits(m); err != nil {
		return choice{}, err
	}
	holders, err := c.verify(ctx, candidate)
	return choice{m, holders}, err
}

// examined is a file in the folder of a group.
type examined struct {
	file  checkpoint.File
	group []*member
	err   error
}

// verify has every file read wherever it is held, by all tasks at once, and
// returns who has a good one. Every file must be good somewhere.
func (c *chief) verify(ctx context.Context, candidate checkpoint.Candidate) (map[string][]cluster.Task, error) {
	copies := c.copies(candidate)
	var work sync.WaitGroup
	for who, list := range byReader(copies) {
		work.Go(func() {
			for _, x := range list {
				q := message{Kind: verify, ID: candidate.ID, File: &x.file}
				_, x.err = c.ask(ctx, who, q, c.config.patience(x.file.Size))
			}
		})
	}
	work.Wait()
	holders, faults := map[string][]cluster.Task{}, map[string][]string{}
	for _, x := range copies {
		if x.err != nil {
			faults[x.file.Name] = append(faults[x.file.Name], x.err.Error())
			continue
		}
		for _, m := range x.group {
			holders[x.file.Name] = append(holders[x.file.Name], m.task)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(faults)) {
		if why := strings.Join(faults[name], ", "); holders[name] == nil {
			return nil, fmt.Errorf("checkpoint %s: %s is good on no host: %s", candidate.ID, name, why)
		} else {
			c.config.logf(slog.LevelWarn, "a copy is not used: %s", why)
		}
	}
	return holders, nil
}

// copies lists every file with every group that holds it.
func (c *chief) copies(candidate checkpoint.Candidate) (all []*examined) {
	c.mu.Lock()
	groups := c.here()
	c.mu.Unlock()
	for _, file := range candidate.Manifest.Files {
		for _, group := range groups {
			if slices.Contains(candidate.Holders[file.Name], group[0].task) {
				all = append(all, &examined{file: file, group: group})
			}
		}
	}
	return all
}

// byReader spreads the reading over the tasks of each group.
func byReader(copies []*examined) map[*member][]*examined {
	readers, next := map[*member][]*examined{}, map[*member]int{}
	for _, x := range copies {
		first := x.group[0]
		who := x.group[next[first]%len(x.group)]
		next[first]++
		readers[who] = append(readers[who], x)
	}
	return readers
}
