package launcher

import (
	"context"
	"encoding/json"
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
	if !req.Follow {
		err := j.merge(ctx, stations, req, out)
		if failed := out.Close(); err == nil {
			err = failed // else it is the same, or matters less
		}
		return err
	}
	errs := make([]error, len(stations))
	var wg sync.WaitGroup
	for i, s := range stations {
		wg.Go(func() {
			if err := s.follow(ctx, req, out, &hearing{}, defaultLease+logPatience); err != nil && !errors.Is(err, errOutput) {
				errs[i] = fmt.Errorf("host %s: logs: %w", s.host.Name, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(append(errs, out.Close())...)
}

func (j *job) merge(ctx context.Context, stations []*station, req logs.Request, out *output) error {
	line, err := json.Marshal(req)
	if err != nil {
		return err
	}
	readers := map[string]*logs.Reader{}
	for _, s := range stations {
		st := openStream(ctx, s.remote, s.command("logs "+s.where()))
		defer st.Close()
		defer context.AfterFunc(ctx, func() { st.Close() })()
		go func() {
			st.Write(append(line, '\n')) // a failed write shows as a failed read
		}()
		readers[s.host.Name] = logs.NewReader(st)
	}
	cut, err := logs.Merge(readers, out.take)
	errs := []error{err}
	for host, why := range cut {
		errs = append(errs, fmt.Errorf("host %s: logs: %w", host, why))
	}
	return errors.Join(errs...)
}
