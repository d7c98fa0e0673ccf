//go:build linux

package jobs

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plx-run/plx/envsync"
	"github.com/plx-run/plx/hostfile"
	"github.com/plx-run/plx/launcher/console"
	"github.com/plx-run/plx/launcher/hosts"
	"github.com/plx-run/plx/launcher/protocol"
)

// own makes the hosts of set use this test program as plx.
func own(t *testing.T, set *hosts.Set) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	plx, err := envsync.FileBlob(exe)
	if err != nil {
		t.Fatal(err)
	}
	set.UseAgent(plx, func(envsync.Platform) (envsync.Blob, error) { return plx, nil })
}

// prune --all removes ~/.plx of this machine, but keeps the record of a job
// whose host cannot be asked. It removes nothing while a launch is in
// progress.
func TestPruneAllRemovesPlx(t *testing.T) {
	for name, x := range map[string]struct {
		prepare func(t *testing.T)
		dry     bool
		stays   string // path below ~/.plx that must remain; empty if nothing may remain
		fails   string
		says    string
	}{
		"all":     {func(*testing.T) {}, false, "", "", "plx: host here: removed all of plx, "},
		"dry run": {func(*testing.T) {}, true, "jobs/j/job.json", "", "plx: nothing was removed: plx prune --all without --dry-run removes "},
		"a launch": {func(t *testing.T) {
			done, err := Announce("next", "train.py")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(done)
		}, false, "launching", "this machine: nothing is removed: a launch is being prepared there, by process ", ""},
		"out of reach": {func(t *testing.T) {
			r := Record{Job: "far", Created: time.Now(), Way: Way{Via: "false {host}"}, Verdict: &protocol.Verdict{}, Hosts: []HostRecord{{Line: "h1", Folder: "h1", Binary: blob}}}
			if err := r.Save(); err != nil {
				t.Fatal(err)
			}
		}, false, "jobs/far/job.json", "host h1: prune: ", "plx: kept, because not all of their hosts can tell what was fetched: far\n"},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("HOME", home)
			save(t, "j", time.Minute, &protocol.Verdict{})
			x.prepare(t)
			var stdout, stderr bytes.Buffer
			cfg := PruneConfig{Query: Query{Terminal: console.Terminal{Stdout: &stdout, Stderr: &stderr}}, All: true, DryRun: x.dry}
			cfg.connect = func(ctx context.Context, reach hosts.Reach, printer *console.Printer) (*hosts.Set, error) {
				set, err := hosts.Open(ctx, reach, printer)
				own(t, set)
				return set, err
			}
			err := prune(t.Context(), cfg, func(ctx context.Context, r Record, printer *console.Printer, like hosts.Reach) (*Job, error) {
				j, err := open(ctx, r, printer, like)
				if err == nil {
					own(t, j.set)
				}
				return j, err
			})
			if (err == nil) != (x.fails == "") || err != nil && !strings.HasPrefix(err.Error(), x.fails) || !strings.Contains(stderr.String(), x.says) {
				t.Errorf("%v, said %q, want %q and %q", err, stderr.String(), x.fails, x.says)
			}
			if x.dry && !strings.Contains(stdout.String(), "record of job j") {
				t.Errorf("listed %q", stdout.String())
			}
			_, gone := os.Stat(filepath.Join(home, ".plx", x.stays))
			if (gone == nil) != (x.stays != "") {
				t.Errorf("%q: %v", x.stays, gone)
			}
			if _, err := os.Stat(filepath.Join(home, ".plx/jobs/j")); x.stays != "" && x.fails != "" && name != "a launch" && err == nil {
				t.Error("the record of a job whose host was pruned is there")
			}
		})
	}
}

// A host named by the user is pruned even if this machine has launched no job
// there. plx is not installed on a host without plx.
func TestPruneIncludesNamedHosts(t *testing.T) {
	for name, x := range map[string]struct {
		job, named, dry bool
		says            string
	}{
		"named":       {true, true, false, "host here: removed 1 old item"},
		"not named":   {true, false, false, ""},
		"dry run":     {true, true, true, "nothing was removed: plx prune without --dry-run removes "},
		"without plx": {false, true, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			home := t.TempDir()
			t.Setenv("HOME", home)
			folder := filepath.Join(home, ".plx/jobs/j/h")
			if x.job {
				long := time.Now().Add(-2 * time.Hour)
				state := filepath.Join(folder, "state.json")
				if err := errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(state, []byte(`{"job":"j","folder":"h","phase":"over"}`), 0o600), os.Chtimes(state, long, long)); err != nil {
					t.Fatal(err)
				}
			}
			var stdout, stderr bytes.Buffer
			cfg := PruneConfig{Query: Query{Terminal: console.Terminal{Stdout: &stdout, Stderr: &stderr}}, Older: time.Hour, DryRun: x.dry}
			if x.named {
				cfg.Reach.Hosts = []hostfile.Host{{Name: "h1"}}
			}
			cfg.connect = func(ctx context.Context, reach hosts.Reach, printer *console.Printer) (*hosts.Set, error) {
				set, err := hosts.Open(ctx, hosts.Reach{LocalHosts: 1, LocalWorkers: 1}, printer)
				own(t, set)
				return set, err
			}
			err := Prune(t.Context(), cfg)
			_, gone := os.Stat(folder)
			if err != nil || !strings.Contains(stderr.String(), x.says) || (gone != nil) != (!x.job || x.named && !x.dry) {
				t.Errorf("%v, %v, said %q", err, gone, stderr.String())
			}
			if _, err := os.Stat(filepath.Join(home, ".plx", "blobs")); !x.job && err == nil {
				t.Error("plx was sent there")
			}
		})
	}
}
