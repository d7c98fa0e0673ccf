package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
)

// Prune removes what jobs left that have ended and are older than the given age: their
// records here, and their files and unused blobs on their hosts.
func Prune(ctx context.Context, q Query, older time.Duration) error {
	p := &pruner{printer: console.NewPrinter(q.Terminal), older: older, done: map[string]bool{}}
	rs, err := Records()
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range rs {
		if time.Since(r.Created) < older || r.runs(ctx, p.printer) {
			continue
		}
		err := p.job(ctx, r)
		if err == nil {
			err = r.Forget()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// pruner is one run of Prune.
type pruner struct {
	printer *console.Printer
	older   time.Duration   // only what was last changed longer ago than this is removed
	done    map[string]bool // hosts that were pruned, by their lines of a resource file
}

// job prunes the hosts of a job, each host once.
func (p *pruner) job(ctx context.Context, r Record) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	j, err := open(ctx, r, p.printer, false)
	if err != nil {
		return err
	}
	defer j.close()
	var errs []error
	for _, a := range j.agents {
		if line := a.Resource.String(); !p.done[line] {
			p.done[line] = true
			errs = append(errs, p.host(ctx, a))
		}
	}
	return errors.Join(errs...)
}

func (p *pruner) host(ctx context.Context, a *hosts.AgentHost) error {
	var stdout bytes.Buffer
	if err := a.Call(ctx, "prune --older "+p.older.String(), nil, &stdout); err != nil && hosts.ExitStatus(err) != hosts.NotFound {
		return a.Named(fmt.Errorf("prune: %w", err))
	}
	n, freed := 0, int64(0)
	for d := json.NewDecoder(&stdout); ; n++ {
		var removed struct{ Bytes int64 }
		if d.Decode(&removed) != nil {
			break // the end
		}
		freed += removed.Bytes
	}
	if n > 0 {
		p.printer.Printf("host %s: removed %s, %s", a.Name(), console.Count(n, "old item"), console.Size(freed))
	}
	return nil
}
