package launcher

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plx-run/plx/logs"
)

// LogsConfig says which lines of which job are wanted.
type LogsConfig struct {
	Query
	Follow bool
	Tasks  []string // "worker:3"; empty: all
	Hosts  []string // empty: all
	Tail   int      // last lines of each task's streams; -1: all
	Since  time.Duration
	Grep   *regexp.Regexp
	JSON   bool
}

// Logs prints a job's logs from the hosts' spools, while it runs or after.
// Following, it returns when the job has ended.
func Logs(ctx context.Context, cfg LogsConfig) error {
	j, err := cfg.open(ctx, false)
	if err != nil {
		return err
	}
	defer j.fleet.Close() // nothing was written
	stations, err := j.choose(cfg.Hosts, cfg.Tasks)
	if err != nil {
		return err
	}
	req := logs.Request{Tasks: cfg.Tasks, TailLines: cfg.Tail, Follow: cfg.Follow}
	if cfg.Since > 0 {
		req.Since = time.Now().Add(-cfg.Since)
	}
	opts := printing(cfg.Terminal)
	opts.Grep, opts.JSON = cfg.Grep, cfg.JSON
	return j.print(ctx, stations, req, opts, cfg.Terminal)
}

// choose returns the stations that the user means.
func (j *job) choose(hosts, tasks []string) ([]*station, error) {
	for _, t := range tasks {
		if !slices.ContainsFunc(j.Hosts, func(h hostRecord) bool { return slices.Contains(h.Tasks, t) }) {
			return nil, Mistake(fmt.Errorf("job %s has no task %s", j.Job, t), "its tasks are "+strings.Join(j.tasks(), ", "))
		}
	}
	var chosen []*station
	for i, s := range j.stations {
		wanted := len(hosts) == 0 || slices.Contains(hosts, s.host.Name)
		if len(tasks) > 0 && !j.Restarts && !slices.ContainsFunc(tasks, func(t string) bool { return slices.Contains(j.Hosts[i].Tasks, t) }) {
			wanted = false
		}
		if wanted {
			chosen = append(chosen, s)
		}
	}
	if len(chosen) == 0 {
		return nil, Mistake(fmt.Errorf("job %s has nothing on %s", j.Job, strings.Join(hosts, ", ")), "")
	}
	return chosen, nil
}

func (j *job) tasks() []string {
	var all []string
	for _, h := range j.Hosts {
		all = append(all, h.Tasks...)
	}
	return all
}

// print streams the chosen hosts' logs to the terminal. What is not followed
// is put in the order of time over all hosts.
func (j *job) print(ctx context.Context, stations []*station, req logs.Request, opts logs.Options, t Terminal) error {
	for _, s := range stations {
		opts.Hosts = append(opts.Hosts, s.host.Name)
	}
	opts.Tasks = j.tasks()
	out := &output{printer: logs.NewPrinter(t.Stdout, t.Stderr, opts)}
	j.voice.through(out.printer.Notice)
	defer j.voice.through(nil)
	show := merge
	if req.Follow {
		show = followAll
	}
	errs := show(ctx, stations, req, out, j.absence())
	for i, err := range errs {
		if errors.Is(err, errOutput) {
			errs[i] = nil // Close tells of it, once for all
		} else if err != nil {
			errs[i] = fmt.Errorf("host %s: logs: %w", stations[i].host.Name, err)
		}
	}
	return errors.Join(append(errs, out.Close())...)
}

// absence is how long a host of the job may be away while its logs are read: an
// agent that is back within its lease goes on with its tasks.
func (j *job) absence() time.Duration { return cmp.Or(j.Lease, defaultLease) + logPatience }

// followAll prints what comes as it comes, and returns each station's error.
func followAll(ctx context.Context, stations []*station, req logs.Request, out *output, patience time.Duration) []error {
	errs := make([]error, len(stations))
	var wg sync.WaitGroup
	for i, s := range stations {
		wg.Go(func() { errs[i] = s.follow(ctx, req, out, &hearing{}, patience) })
	}
	wg.Wait()
	return errs
}

// merge prints what is there in the order of time, and returns each station's
// error.
func merge(ctx context.Context, stations []*station, req logs.Request, out *output, patience time.Duration) []error {
	var next []func() (logs.Chunk, error)
	for _, s := range stations {
		f := &feed{station: s, req: req, cursor: &out.cursor, heard: &hearing{}, patience: patience}
		defer f.close()
		f.open(ctx) // all at once, for the first chunks are waited for one by one
		next = append(next, func() (logs.Chunk, error) { return f.next(ctx) })
	}
	return logs.Merge(next, func(i int, c logs.Chunk) error { return out.take(stations[i].remote, c) })
}
