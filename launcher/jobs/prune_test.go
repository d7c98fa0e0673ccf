package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/internal/test/transporttest"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
	"github.com/plx-run/plx/launcher/slurm"
	"github.com/plx-run/plx/launcher/submission"
	"github.com/plx-run/plx/launcher/transport"
)

// hosted makes a home directory with an agent that is a script, for jobs of an
// embedded cluster.
func hosted(t *testing.T, script string) (home string) {
	t.Helper()
	home = t.TempDir()
	t.Setenv("HOME", home)
	if err := putAgent(home, script); err != nil {
		t.Fatal(err)
	}
	return home
}

// asked returns the distinct commands that the agent has received.
func asked(t *testing.T, home string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(home, "asked"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	lines := strings.Fields(strings.ReplaceAll(string(text), " ", "_"))
	slices.Sort(lines)
	return slices.Compact(lines)
}

func save(t *testing.T, job string, age time.Duration, v *protocol.Verdict) {
	t.Helper()
	r := Record{Job: job, Created: time.Now().Add(-age), Embedded: true, Verdict: v, Hosts: []HostRecord{{Line: "127.0.0.2", Folder: "127.0.0.2", Binary: blob}}}
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
}

// pruned removes what is older than an hour, and returns the remaining jobs
// and the printed messages.
func pruned(t *testing.T, cfg PruneConfig) (left []string, said string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cfg.Terminal, cfg.Older = console.Terminal{Stdout: &stdout, Stderr: &stderr}, time.Hour
	err = Prune(t.Context(), cfg)
	rs, unread := Records()
	if unread != nil {
		t.Fatal(unread)
	}
	for _, r := range rs {
		left = append(left, r.Job)
	}
	return left, stdout.String() + stderr.String(), err
}

// Prune keeps the record of a job that runs, has unfetched files, or cannot be
// checked, and of every job with --dry-run. The agent receives the
// corresponding request.
func TestPruneKeepsRecords(t *testing.T) {
	const prune = "agent_prune_--older_1h0m0s"
	ended := &protocol.Verdict{}
	for name, x := range map[string]struct {
		script  string
		verdict *protocol.Verdict
		cfg     PruneConfig
		left    bool
		asked   []string
		says    string
	}{
		"ended": {`echo '{"path":"jobs/j/h","bytes":1}'`, ended, PruneConfig{}, false, []string{prune, prune + "_--dry-run"}, "removed 1 old item, 1 B"},
		"runs":  {`echo '{"job":"j"}'`, nil, PruneConfig{}, true, []string{"agent_state_j_127.0.0.2"}, ""},
		"not fetched": {`echo '{"path":"jobs/j/h","bytes":5,"outputs":2,"job":"j","folder":"127.0.0.2"}'`, ended, PruneConfig{}, true,
			[]string{prune + "_--dry-run"}, "kept job j: 2 files, 5 B, on 1 host, not fetched"},
		"written meanwhile": {`case $* in *dry*) echo '{"path":"jobs/j/h"}';; *) echo '{"path":"jobs/j/h","outputs":2,"job":"j","folder":"127.0.0.2"}'; esac`, ended, PruneConfig{}, true,
			[]string{prune, prune + "_--dry-run"}, "kept job j: 2 files"},
		"discarded":     {`echo '{"path":"jobs/j/h","bytes":1}'`, ended, PruneConfig{Discard: true}, false, []string{prune + "_--dry-run_--outputs", prune + "_--outputs"}, ""},
		"dry run":       {`echo '{"path":"jobs/j/h","bytes":1}'`, ended, PruneConfig{DryRun: true}, true, []string{prune + "_--dry-run"}, "record of job j"},
		"nothing":       {"", ended, PruneConfig{}, false, []string{prune + "_--dry-run"}, ""},
		"runs, dry run": {`echo '{"job":"j"}'`, nil, PruneConfig{DryRun: true}, true, []string{"agent_state_j_127.0.0.2"}, "nothing to remove"},
		"fails":         {"exit 5", ended, PruneConfig{}, true, []string{prune + "_--dry-run"}, "kept, because not all of their hosts can tell what was fetched: j\n"},
		"fails at last": {`echo '{"path":"blobs/x"}'; exit 5`, ended, PruneConfig{}, true, []string{prune + "_--dry-run"}, "can tell what was fetched: j\n"},
		"fails later":   {`case $* in *dry*) echo '{"path":"jobs/j/h"}';; *) exit 5; esac`, ended, PruneConfig{}, true, []string{prune, prune + "_--dry-run"}, ""},
		"is cut off":    {`echo '{"path":"jobs/j/h","by'`, ended, PruneConfig{}, true, []string{prune + "_--dry-run"}, "can tell what was fetched: j\n"},
		"cannot tell": {`echo '{"path":"jobs/j/h","outputs":1,"job":"j","folder":"127.0.0.2","unchecked":"damaged"}'`, ended, PruneConfig{}, true,
			[]string{prune + "_--dry-run"}, "can tell what was fetched: j\n"},
	} {
		home := hosted(t, x.script)
		save(t, "j", 2*time.Hour, x.verdict)
		left, said, err := pruned(t, x.cfg)
		if got := asked(t, home); len(left) == 1 != x.left || !slices.Equal(got, x.asked) || !strings.Contains(said, x.says) || (err != nil) != slices.Contains([]string{"fails", "fails at last", "fails later", "is cut off", "cannot tell"}, name) {
			t.Errorf("%s: left %q, %v; asked %q; said %q", name, left, err, got, said)
		}
	}
}

// Prune removes all files of a job or none. It asks the hosts to keep jobs
// that are young or that another host must keep. It removes everything else.
func TestPruneKeepsWholeJobs(t *testing.T) {
	dry := `echo '{"path":"jobs/j/h1","outputs":1,"job":"j","folder":"h1"} {"path":"jobs/j/h2"} {"path":"jobs/young/h2"} {"path":"jobs/k/h2"} {"path":"blobs/x"}'`
	home := hosted(t, `case $* in *dry*) `+dry+`;; *) cat > ~/request; echo '{"path":"jobs/j/h1","outputs":1,"job":"j","folder":"h1"} {"path":"blobs/x","bytes":3}'; esac`)
	save(t, "j", 2*time.Hour, &protocol.Verdict{})
	save(t, "k", 2*time.Hour, &protocol.Verdict{})
	save(t, "young", time.Minute, &protocol.Verdict{})
	left, said, err := pruned(t, PruneConfig{})
	if err != nil || !slices.Equal(left, []string{"j", "young"}) || !strings.Contains(said, "removed 1 old item, 3 B\n") || !strings.Contains(said, "kept job j: 1 file, ") {
		t.Errorf("left %q, %v, said %q", left, err, said)
	}
	if text, err := os.ReadFile(filepath.Join(home, "request")); err != nil || string(text) != "j young" {
		t.Errorf("the host was asked to keep %s, %v", text, err)
	}
}

// If a request to a host fails, Prune keeps all jobs that ran on this host.
func TestPruneKeepsJobsOfAHostThatFails(t *testing.T) {
	hosted(t, "exit 5")
	save(t, "j", 2*time.Hour, &protocol.Verdict{})
	save(t, "k", 2*time.Hour, &protocol.Verdict{})
	left, said, err := pruned(t, PruneConfig{})
	if err == nil || len(left) != 2 || !strings.Contains(said, "can tell what was fetched: j, k\n") {
		t.Errorf("left %q, %v, said %q", left, err, said)
	}
	if left, said, err = pruned(t, PruneConfig{Discard: true}); err == nil || len(left) != 2 || strings.Contains(said, "fetched") {
		t.Errorf("without their files: left %q, %v, said %q", left, err, said)
	}
}

// If a host cannot be asked about a job, the job's files on its other hosts
// stay, unless the user discards output files.
func TestUncheckedHostKeepsJob(t *testing.T) {
	p := &pruner{unchecked: map[string]bool{"j": true}}
	if !p.stays("j") || p.stays("k") {
		t.Error("j does not stay, or k does")
	}
	if p.cfg.Discard = true; p.stays("j") {
		t.Error("j stays without its files")
	}
}

// Hosts with the same name that are reached through different --via commands
// are different hosts.
func TestPruneTellsHostsApartByVia(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	homes := map[string]string{}
	for _, via := range []string{"", "docker exec -i {host}", "kubectl exec -i {host} --"} {
		homes[via] = hosted(t, "exit 0")
	}
	for job, via := range map[string]string{"a": "", "b": "docker exec -i {host}", "c": "kubectl exec -i {host} --", "d": ""} {
		r := Record{Job: job, Created: time.Now().Add(-2 * time.Hour), Way: Way{Via: via}, Verdict: &protocol.Verdict{}, Hosts: []HostRecord{{Line: "h1", Folder: "h1", Binary: blob}}}
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
	}
	open := func(_ context.Context, r Record, printer *console.Printer, _ hosts.Reach) (*Job, error) {
		h := hosts.NewHost(hostfile.Host{Name: "h1"}, func(context.Context) (transport.Transport, error) { return transporttest.Shell(homes[r.Via]), nil })
		return &Job{Record: r, printer: printer, set: &hosts.Set{Hosts: []*hosts.Host{h}}, agents: []*hosts.AgentHost{{Host: h}}}, nil
	}
	if err := prune(t.Context(), PruneConfig{Older: time.Hour, Query: Query{Terminal: console.Terminal{Stdout: io.Discard, Stderr: io.Discard}}}, open); err != nil {
		t.Fatal(err)
	}
	for via, home := range homes {
		if text, err := os.ReadFile(filepath.Join(home, "asked")); err != nil || strings.Count(string(text), "\n") != 1 {
			t.Errorf("by %q the host was asked %q, %v, want one question", via, text, err)
		}
	}
}

// The error of a host that does not reply names the host and the time limit.
// Other hosts do not wait for it: in this test it connects only after all
// others, which have younger jobs, were asked.
func TestPruneDoesNotWaitForAStalledHost(t *testing.T) {
	home := hosted(t, `echo '{"path":"blobs/x","bytes":1}'`)
	const hostsBesides = 5
	asked := make(chan string, hostsBesides)
	for i := range hostsBesides + 1 {
		name := fmt.Sprint("h", i)
		r := Record{Job: "j" + name, Created: time.Now().Add(-time.Duration(9-i) * time.Hour), Verdict: &protocol.Verdict{}, Hosts: []HostRecord{{Line: name, Folder: name, Binary: blob}}}
		if err := r.Save(); err != nil {
			t.Fatal(err)
		}
	}
	open := func(_ context.Context, r Record, printer *console.Printer, _ hosts.Reach) (*Job, error) {
		h := hosts.NewHost(hostfile.Host{Name: r.Hosts[0].Line}, func(ctx context.Context) (transport.Transport, error) {
			if r.Hosts[0].Line == "h0" {
				for range hostsBesides {
					select {
					case <-asked:
					case <-ctx.Done():
						t.Error("other hosts wait for h0")
						return nil, context.Cause(ctx)
					}
				}
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			asked <- r.Job
			return transporttest.Shell(home), nil
		})
		return &Job{Record: r, printer: printer, set: &hosts.Set{Hosts: []*hosts.Host{h}}, agents: []*hosts.AgentHost{{Host: h}}}, nil
	}
	var said bytes.Buffer
	err := prune(t.Context(), PruneConfig{Older: time.Hour, answerTime: 5 * time.Second, Query: Query{Terminal: console.Terminal{Stdout: io.Discard, Stderr: &said}}}, open)
	if err == nil || err.Error() != "host h0: prune: no answer within 5s" {
		t.Errorf("%v", err)
	}
	if n := strings.Count(said.String(), "removed 1 old item, 1 B\n"); n != hostsBesides || !strings.Contains(said.String(), "can tell what was fetched: jh0\n") {
		t.Errorf("%d hosts were pruned, said %q", n, said.String())
	}
	if rs, err := Records(); err != nil || len(rs) != 1 || rs[0].Job != "jh0" {
		t.Errorf("left %v, %v", rs, err)
	}
}

// Prune keeps a job if its hosts are not known.
func TestPruneKeepsJobsOfUnknownHosts(t *testing.T) {
	hosted(t, "exit 5")
	r := Record{Job: "j", Created: time.Now().Add(-2 * time.Hour), Verdict: &protocol.Verdict{}, Hosts: []HostRecord{{Line: "h1: no line"}}}
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	for _, discard := range []bool{false, true} {
		if left, said, err := pruned(t, PruneConfig{Discard: discard}); err == nil || !slices.Equal(left, []string{"j"}) {
			t.Errorf("left %q, %v, said %q", left, err, said)
		}
	}
}

// If the newest agent executable was removed from a host, Prune uses an older
// one.
func TestPruneUsesAnOlderAgent(t *testing.T) {
	hosted(t, `echo '{"path":"jobs/j/h","bytes":5,"outputs":2,"job":"j","folder":"127.0.0.2"}'`)
	save(t, "j", 3*time.Hour, &protocol.Verdict{})
	r := Record{Job: "k", Created: time.Now().Add(-2 * time.Hour), Embedded: true, Verdict: &protocol.Verdict{}, Hosts: []HostRecord{{Line: "127.0.0.2", Folder: "127.0.0.2", Binary: blob + "-gone"}}}
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	if left, said, err := pruned(t, PruneConfig{}); err != nil || !slices.Equal(left, []string{"j"}) {
		t.Errorf("left %q, %v, said %q", left, err, said)
	}
}

// Prune does not ask the hosts of a young job.
func TestPruneDoesNotAskHostsOfYoungJobs(t *testing.T) {
	home := hosted(t, "exit 5")
	save(t, "young", time.Minute, nil)
	left, said, err := pruned(t, PruneConfig{})
	if got := asked(t, home); len(left) != 1 || err != nil || len(got) > 0 {
		t.Errorf("left %q, %v; asked %q; said %q", left, err, got, said)
	}
}

// Prune removes a submission if its Slurm job has ended and plx has no record
// of a job. It keeps a submission that Slurm may still run, even if plx has a
// record of its last job.
func TestPruneRemovesEndedSubmissions(t *testing.T) {
	for name, x := range map[string]struct {
		line     string
		age      time.Duration
		launched bool
		cfg      PruneConfig
		stays    bool
		fails    bool
	}{
		"over":           {"JobState=CANCELLED ExitCode=0:15", 2 * time.Hour, false, PruneConfig{}, false, false},
		"pending":        {"JobState=PENDING ExitCode=0:0", 2 * time.Hour, false, PruneConfig{}, true, false},
		"young":          {"JobState=CANCELLED ExitCode=0:15", time.Minute, false, PruneConfig{}, true, false},
		"dry run":        {"JobState=CANCELLED ExitCode=0:15", 2 * time.Hour, false, PruneConfig{DryRun: true}, true, false},
		"not known":      {"nonsense", 2 * time.Hour, false, PruneConfig{}, true, true},
		"of a young job": {"JobState=COMPLETED ExitCode=0:0", 2 * time.Hour, true, PruneConfig{}, true, false},
	} {
		t.Setenv("HOME", t.TempDir())
		answer(t, x.line)
		s := submission.Submission{Job: "j", Created: time.Now().Add(-x.age)}
		if err := errors.Join(s.Make(nil), s.Record("7", "out")); err != nil {
			t.Fatal(err)
		}
		if x.launched {
			r := Record{Job: "j", Created: time.Now(), Way: Way{Slurm: slurm.Run{ID: "7"}}, Verdict: &protocol.Verdict{}, Hosts: []HostRecord{{Line: "h1"}}}
			if err := r.Save(); err != nil {
				t.Fatal(err)
			}
		}
		_, said, err := pruned(t, x.cfg)
		if _, stays := submission.Of("j"); stays != x.stays || (err != nil) != x.fails || x.cfg.DryRun && !strings.Contains(said, "record of job j") {
			t.Errorf("%s: stays %v, %v, %q", name, stays, err, said)
		}
	}
}

// Forget removes a job's record but keeps the submission if Slurm may launch
// the job again.
func TestForgetKeepsAPendingSubmission(t *testing.T) {
	for _, over := range []*slurm.State{nil, {Name: "FAILED"}} {
		t.Setenv("HOME", t.TempDir())
		s := submission.Submission{Job: "j", Over: over}
		if err := errors.Join(s.Make([]string{"A=1"}), s.Record("7", "out")); err != nil {
			t.Fatal(err)
		}
		r := Record{Job: "j", Hosts: []HostRecord{{Line: "h1"}}}
		if err := errors.Join(r.Save(), r.Forget()); err != nil {
			t.Fatal(err)
		}
		_, stays := submission.Of("j")
		if _, found := byID("j"); found || stays != (over == nil) {
			t.Errorf("over %v: record %v; submission %v", over, found, stays)
		}
	}
}

// A file that is not a valid record of its folder's job is ignored: Forget
// with such a record could remove another job's folder.
func TestInvalidRecordIsIgnored(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	for job, text := range map[string]string{
		"a": `{"job":"b","hosts":[{"line":"h1"}]}`, "c": `{"job":"c","hosts":[]}`, "d": `{"job":"d","hosts":[{"line":"h1"}],"chief":-1}`, "e": `{"job":"..","hosts":[{"line":"h1"}]}`,
	} {
		s := submission.Submission{Job: job}
		dir, err := s.Folder()
		if err = errors.Join(err, s.Make(nil), os.WriteFile(filepath.Join(dir, "job.json"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if rs, err := Records(); len(rs) > 0 || err != nil {
		t.Errorf("%+v, %v", rs, err)
	}
}

// If a job's end is not known, its age counts from the launch. Files in a home
// directory that several hosts share are counted once.
func TestKeepCountsASharedHomeOnce(t *testing.T) {
	r := Record{Created: time.Now(), Verdict: &protocol.Verdict{}}
	if !r.last().Equal(r.Created) {
		t.Errorf("it ended at %s", r.last())
	}
	p := &pruner{kept: map[string]*kept{}}
	for _, folder := range []string{"h1", "h2", "h1"} {
		p.keep(protocol.Pruned{Job: "j", Folder: folder, Outputs: 2, Bytes: 5}, "")
	}
	if k := p.kept["j"]; k.files != 4 || k.bytes != 10 || len(k.on) != 2 {
		t.Errorf("kept %+v, want what is in two folders", k)
	}
}
