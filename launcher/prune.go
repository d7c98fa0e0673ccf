package launcher

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	var old []record
	for _, r := range rs {
		if time.Since(r.Created) >= older && (r.Verdict != nil || !stillRuns(ctx, &r, v)) {
			old = append(old, r)
		}
	}
	var errs []error
	pruned := map[string]bool{}
	for _, r := range old {
		if err := r.prune(ctx, v, older, pruned); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, r.forget())
	}
	return errors.Join(errs...)
}

// forget removes the record.
func (r record) forget() error {
	folder, err := jobsFolder()
	if err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(folder, r.Job))
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
		if host := s.host.String(); !pruned[host] {
			pruned[host] = true
			errs = append(errs, s.prune(ctx, v, older))
		}
	}
	return errors.Join(errs...)
}

func (s *station) prune(ctx context.Context, v *voice, older time.Duration) error {
	var stdout bytes.Buffer
	stderr := tail{limit: 4 << 10}
	if err := s.Run(ctx, s.command("prune --older "+older.String()), nil, &stdout, &stderr); err != nil && exitStatus(err) != 127 {
		return fmt.Errorf("host %s: prune: %w", s.host.Name, explain(err, stderr.String()))
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
		v.say("host %s: removed %s, %s", s.host.Name, count(n, "old item"), size(freed))
	}
	return nil
}
