package e2e

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// printedIn returns the contents of the logs that were fetched into a folder,
// by file name.
func printedIn(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range files(t, filepath.Join(dir, "logs")) {
		all[name] = string(read(t, filepath.Join(dir, "logs", name)))
	}
	return all
}

// TestFetchLogs fetches the logs of a running job, and fetches the rest after
// the job has ended. The files must equal those of --log-dir. plx must not
// overwrite a file that the user has replaced in between.
func TestFetchLogs(t *testing.T) {
	b := local(t)
	dir, launched, gate := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "gate")
	script := `printf "rank $RANK\n\001"; [ $RANK = 0 ] || exit 0; echo warned >&2; touch ` + gate + `.waits; until [ -e ` + gate + ` ]; do sleep 0.02; done; echo more`
	job := b.detach("--local", "2x1", "sh", "-c", script)
	b.appear(gate + ".waits")
	contains(t, b.want(0, "fetch", job, dir).stderr, "fetched 3 logs of "+job+" into "+dir+"/logs: 3 files, 23 B\n")
	want := map[string]string{"worker-0.stdout": "rank 0\n\x01", "worker-0.stderr": "warned\n", "worker-1.stdout": "rank 1\n\x01"}
	if got := printedIn(t, dir); !maps.Equal(got, want) {
		t.Errorf("while the job runs: %q, want %q", got, want)
	}
	put(t, gate, "", 0o600)
	b.want(0, "attach", job)
	contains(t, b.want(0, "fetch", job, dir).stderr, "3 files, 5 B, 2 of them there already\n")
	want["worker-0.stdout"] += "more\n"
	if got := printedIn(t, dir); !maps.Equal(got, want) {
		t.Errorf("after the job: %q, want %q", got, want)
	}
	b.want(0, "launch", "--local", "2x1", "--log-dir", filepath.Join(launched, "logs"), "--fetch", dir, "sh", "-c", script)
	want["worker-1.stderr"] = "" // plx fetch creates no file for an empty stream
	if got := printedIn(t, launched); !maps.Equal(got, want) {
		t.Errorf("--log-dir: %q, want %q", got, want)
	}
	put(t, filepath.Join(dir, "logs/worker-1.stdout"), "mine", 0o600)
	contains(t, b.want(125, "fetch", job, dir).stderr, "log logs/worker-1.stdout: "+dir+"/logs/worker-1.stdout already exists with other content")
	contains(t, b.want(0, "launch", "--local", "2x1", "--fetch", dir, "sh", "-c", script).stderr, "log logs/worker-1.stdout: ", "already exists with other content", ": done")
	if got, err := os.ReadFile(filepath.Join(dir, "logs/worker-1.stdout")); string(got) != "mine" {
		t.Errorf("it was replaced by %q, %v", got, err)
	}
	contains(t, b.want(0, "prune", "--older", "0s").stderr, "removed")
}
