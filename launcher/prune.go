package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"
)

// Prune removes what ended jobs left, on this machine and on the hosts of the
// jobs that it knows of, where it is older than the given age.
func Prune(ctx context.Context, q Query, older time.Duration) error {
	v := newVoice(q.Terminal)
	rs, err := loadRecords()
	if err != nil {
		return err
	}
	var errs []error
	pruned := map[string]bool{}
	for _, r := range rs {
		if time.Since(r.Created) < older || (r.Verdict == nil && stillRuns(ctx, r, v)) {
			continue
		}
		if err := r.prune(ctx, v, older, pruned); err != nil {
			errs = append(errs, err)
			continue
		}
		folder, err := jobsFolder()
		if err == nil {
			err = os.RemoveAll(folder + "/" + r.Job)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// prune asks the job's hosts, each once, to remove what is old.
func (r record) prune(ctx context.Context, v *voice, older time.Duration, pruned map[string]bool) error {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	j, err := r.open(ctx, v, false)
	if err != nil {
		return err
	}
	defer j.fleet.Close() // nothing is owed
	var errs []error
	for _, s := range j.stations {
		if pruned[s.host.String()] {
			continue
		}
		pruned[s.host.String()] = true
		out := tail{limit: 16 << 10}
		if err := s.Run(ctx, s.command("prune --older "+older.String()), nil, &out, &out); err != nil {
			errs = append(errs, fmt.Errorf("host %s: prune: %w", s.host.Name, explain(err, out.String())))
			continue
		}
		if said := strings.TrimSpace(out.String()); said != "" {
			v.say("host %s: %s", s.host.Name, strings.ReplaceAll(said, "\n", "; "))
		}
	}
	return errors.Join(errs...)
}
