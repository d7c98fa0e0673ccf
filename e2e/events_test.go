package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// eventLine is one line of the output of plx launch --json: an event, or a
// line that a task printed.
type eventLine struct {
	V                              int
	Event, Time, Job, Name, Error  string
	Host, Task, Stream, Line       string
	Verdict, Culprit, Why, Program string
	Generation, Status             *int
	Seconds                        float64
	Hosts                          []struct {
		Host  string
		Tasks []struct{ Task, Devices string }
	}
}

// events parses the stdout of plx launch --json and checks the rules that all
// events follow. It returns the kind of each event, with the task if the event
// has one, and all events.
func (b *bench) events(res result) (kinds []string, all []eventLine) {
	b.t.Helper()
	for line := range strings.Lines(res.stdout) {
		var e eventLine
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			b.t.Fatalf("%q: %v", line, err)
		}
		kind := e.Event
		switch {
		case kind == "":
			kind = e.Stream
			if e.Stream == "" || e.V != 0 {
				b.t.Errorf("neither an event nor a line of a task: %s", line)
			}
		case e.V != 1:
			b.t.Errorf("an event without its version: %s", line)
		}
		if e.Task != "" {
			kind += " " + e.Task
		}
		kinds, all = append(kinds, kind), append(all, e)
	}
	if len(all) == 0 {
		b.t.Fatalf("no events; stderr: %s", res.stderr)
	}
	if last := all[len(all)-1]; last.Event != "end" || last.Status == nil || *last.Status != res.code {
		b.t.Errorf("plx ended with %d, the last event is %+v", res.code, last)
	}
	return kinds, all
}

// inOrder fails the test unless the wanted kinds of events occur in this
// order; other events may occur between them.
func (b *bench) inOrder(kinds []string, want ...string) {
	b.t.Helper()
	rest := want
	for _, kind := range kinds {
		if len(rest) > 0 && kind == rest[0] {
			rest = rest[1:]
		}
	}
	if len(rest) > 0 {
		b.t.Errorf("events %q have not %q in this order", kinds, want)
	}
}

// TestLaunchJSON checks the events of jobs that succeed, fail, restart, hang,
// or never start.
func TestLaunchJSON(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	file := b.ResourceFile("h1: cpu", "h2: cpu")
	launch := func(args ...string) []string { return append([]string{"launch", "--json", "--hosts", file}, args...) }
	t.Run("done", func(t *testing.T) {
		b := b.in(t)
		res := b.want(0, launch("--name", "well", b.script("well", "echo up; echo down >&2"))...)
		kinds, all := b.events(res)
		for _, task := range []string{"worker:0", "worker:1"} {
			b.inOrder(kinds, "begin", "start "+task, "exit "+task, "end")
			b.inOrder(kinds, "begin", "stdout "+task, "end")
			b.inOrder(kinds, "begin", "stderr "+task, "end")
		}
		if len(all) != 10 || kinds[0] != "begin" {
			t.Errorf("%d events: %s", len(all), res.stdout)
		}
		if h := all[0].Hosts; len(h) != 2 || h[0].Host != "h1" || h[1].Tasks[0].Task != "worker:1" || all[0].Name != "well" {
			t.Errorf("the plan: %+v", all[0])
		}
		last := all[len(all)-1]
		if last.Verdict != "done" || last.Error != "" || last.Job != all[0].Job || !strings.HasPrefix(last.Job, "well-") {
			t.Errorf("the end: %+v", last)
		}
		if strings.Contains(res.stderr, "down") {
			t.Errorf("stderr has lines of tasks: %s", res.stderr)
		}
	})
	t.Run("restart", func(t *testing.T) {
		b := b.in(t)
		kinds, all := b.events(b.want(7, launch("--max-restarts", "1", "--restart-backoff", "1ms", b.script("fails", `[ "$RANK" = 1 ] && exit 7; exec sleep 300`))...))
		b.inOrder(kinds, "begin", "start worker:1", "exit worker:1", "restart", "start worker:1", "exit worker:1", "end")
		for _, e := range all {
			if e.Event == "restart" && (*e.Generation != 1 || len(e.Hosts) != 2) {
				t.Errorf("restart: %+v", e)
			}
		}
		if last := all[len(all)-1]; !strings.Contains(last.Verdict, "worker:1 on h2 exited with status 7") {
			t.Errorf("the end: %+v", last)
		}
	})
	t.Run("hang", func(t *testing.T) {
		b := b.in(t)
		program, err := filepath.Abs("testdata/pair.py")
		if err != nil {
			t.Fatal(err)
		}
		kinds, all := b.events(b.want(124, launch("--hang-timeout", "5s", "--on-hang", "stop", "--grace", "1s", program, "/")...))
		b.inOrder(kinds, "begin", "start worker:1", "hang", "exit worker:1", "end")
		for _, e := range all {
			if e.Event == "hang" && (e.Culprit != "worker:1" || e.Host != "h2" || e.Seconds < 5 || !strings.HasPrefix(e.Why, "it sleeps")) {
				t.Errorf("hang: %+v", e)
			}
		}
	})
	for name, c := range map[string]struct {
		code int
		args []string
	}{
		"no such flag":      {2, launch("--no-such-flag", "true")},
		"a wrong value":     {2, launch("-n", "many", "true")},
		"a wrong time":      {2, launch("--lease", "1s", "true")},
		"no such folder":    {2, launch("--workdir", "/no/such/folder", "true")},
		"no such file":      {2, []string{"launch", "--hosts", "/no/such/file", "--json", "true"}},
		"detached":          {2, launch("--detach", "true")},
		"for Slurm":         {2, []string{"launch", "--json", "--slurm", "true"}},
		"unreachable":       {125, []string{"launch", "--json", "--host", "h9.invalid", "--start-timeout", "5s", "true"}},
		"the file is wrong": {2, []string{"launch", "--json", "--hosts", b.ResourceFile("h1: cpu cpu gpu"), "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := b.in(t)
			_, all := b.events(b.want(c.code, c.args...))
			if len(all) != 1 || all[0].Error == "" || all[0].Job != "" {
				t.Errorf("events: %+v", all)
			}
		})
	}
	t.Run("of the program", func(t *testing.T) { // its flag
		if res := b.in(t).want(2, "launch", "--lease", "1s", "true", "--json"); res.stdout != "" {
			t.Errorf("stdout: %s", res.stdout)
		}
	})
	b.hostsGone(0)
}
