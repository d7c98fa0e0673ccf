package e2e

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/plx-run/plx/internal/test/testhosts"
)

// page is an HTML report, as an HTML parser reads it.
type page struct {
	text  string
	lines []string // labels and SVG elements that the test looks for
}

// readPage parses a report, which must contain no script and no address of
// another machine.
func readPage(t *testing.T, path string) (p page) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // only read
	if info, err := f.Stat(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v", path, info.Mode(), err)
	}
	root, err := html.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for n := range root.Descendants() {
		switch {
		case n.Type == html.TextNode:
			text.WriteString(n.Data + " ")
		case n.Type == html.ElementNode && (n.Data == "script" || n.Data == "link" || n.Data == "iframe" || n.Data == "img"):
			t.Errorf("%s: it has a %s", path, n.Data)
		case n.Type == html.ElementNode && n.Data == "svg":
			for _, a := range n.Attr {
				if a.Key == "aria-label" {
					p.lines = append(p.lines, a.Val)
				}
			}
		}
		for _, a := range n.Attr {
			if a.Key == "src" || a.Key == "href" {
				t.Errorf("%s: it refers to %s", path, a.Val)
			}
		}
	}
	p.text = text.String()
	return p
}

// TestReport checks that the launching machine keeps a record of each job,
// without secrets. plx report must show the record even after the hosts have
// deleted the job.
func TestReport(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	file := b.ResourceFile("h1", "h2")
	b.dir = t.TempDir()
	git := exec.Command("sh", "-c", "git init -q && git config user.email a@b && git config user.name a && echo one >a && git add a && git commit -qm first && echo two >a")
	git.Dir = b.dir
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	secrets := filepath.Join(t.TempDir(), "secrets.env")
	put(t, secrets, "FILE_VALUE=f1le-value\nMY_TOKEN=t0ken-in-file\n", 0o600)
	train := b.script("train", `for i in 1 2 3 4 5 6 7; do echo "step $i loss: 0.$i"; sleep 0.8; done
[ $RANK = 0 ] || [ "$1" = well ] || { echo "out of luck <b>"; exit 3; }`)
	b.want(3, "launch", "--hosts", file, "--ps", "none", "--name", "bad", "--keep-diff", "--env", "API_KEY=k3y-value", "--env", "MODE=fast", "--env-file", secrets, train, "--password", "p4ss")
	b.want(0, "launch", "--hosts", file, "--ps", "none", "--name", "good", train, "well")

	// The kept files are private, bounded in size, and contain no secret.
	jobs := filepath.Join(b.home, ".plx", "jobs")
	var size int64
	err := filepath.WalkDir(jobs, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		size += info.Size()
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		for _, secret := range []string{"k3y-value", "f1le-value", "t0ken-in-file", "p4ss"} {
			if strings.Contains(string(text), secret) {
				t.Errorf("%s has %s", path, secret)
			}
		}
		return nil
	})
	if err != nil || size == 0 {
		t.Fatal(size, err)
	}

	// After the hosts have deleted the jobs, this machine still has complete
	// records.
	for _, h := range b.Hosts {
		if err := os.RemoveAll(filepath.Join(h.HomeDir, ".plx", "jobs")); err != nil {
			t.Fatal(err)
		}
	}
	contains(t, b.want(0, "report", "bad", "-o", "bad.html").stderr, "wrote bad.html")
	p := readPage(t, filepath.Join(b.dir, "bad.html"))
	contains(t, p.text, "failed", "worker:1 on h2 exited with status 3", "out of luck <b>", "variable MODE", "fast", "variable API_KEY", "--password ***", "plx launch --hosts", "git commit", "git changes", "1 file", "2 x ", "exited with status 3", "worker:0", "loss")
	contains(t, strings.Join(p.lines, "\n"), "loss", "CPU", "memory")
	if strings.Contains(p.text, "not in this report") {
		t.Errorf("something is missing: %s", p.text)
	}
	contains(t, b.want(0, "report", "good", "bad").stderr, ".html")
	pages, err := filepath.Glob(filepath.Join(b.dir, "good-*.html"))
	if err != nil || len(pages) != 1 {
		t.Fatal(pages, err)
	}
	contains(t, readPage(t, pages[0]).text, "good", "bad", "done", "failed", "launched with")
	var told struct {
		V    int
		Runs []struct{ Job, Name, State string }
	}
	if err := json.Unmarshal([]byte(b.want(0, "report", "--format", "json", "bad").stdout), &told); err != nil || told.V != 1 || len(told.Runs) != 1 || told.Runs[0].State != "failed" {
		t.Errorf("%+v, %v", told, err)
	}
	contains(t, b.want(0, "report", "--format", "md", "bad").stdout, "# bad", "| loss | worker:0 |")

	// plx report overwrites an earlier report, but no other file.
	b.want(0, "report", "bad", "-o", "bad.html")
	put(t, filepath.Join(b.dir, "mine"), "precious", 0o600)
	contains(t, b.want(2, "report", "bad", "-o", "mine").stderr, "mine exists and is no report of plx", "--force")
	b.want(0, "report", "bad", "-o", "mine", "--force")
	contains(t, b.want(2, "report", "bad", "bad").stderr, "named twice")
	contains(t, b.want(2, "report", "--format", "pdf", "bad").stderr, "--format pdf: want html, md or json")
	contains(t, b.want(2, "report", "nothing").stderr, "this machine knows no such job")

	// A crash has truncated the record of one job, which an older plx has
	// launched. plx report shows what exists and names what is missing.
	var folder string
	if all, err := filepath.Glob(filepath.Join(jobs, "bad-*")); err != nil || len(all) != 1 {
		t.Fatal(all, err)
	} else {
		folder = all[0]
	}
	for _, name := range []string{"run.json", "events.jsonl", "course.json"} {
		path := filepath.Join(folder, name)
		info, err := os.Stat(path)
		if err == nil {
			err = os.Truncate(path, info.Size()/2)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	b.want(0, "report", "bad", "-o", "bad.html")
	contains(t, readPage(t, filepath.Join(b.dir, "bad.html")).text, "failed", "worker:1 on h2 exited with status 3", "command and versions:", "host h1:")
	b.hostsGone(0)
}

// TestReportWhileItRuns reports on a detached job while it runs, after its
// end, and from another machine. The report of a job without metrics explains
// how to get metrics.
func TestReportWhileItRuns(t *testing.T) {
	t.Parallel()
	b := newBench(t, testhosts.Options{Hosts: 2}).withPlx()
	end := filepath.Join(b.shared(), "end")
	file := b.ResourceFile("h1", "h2")
	job := b.detach("--hosts", file, "--ps", "none", b.script("s", `for i in 1 2 3; do echo "step $i loss: 0.$i"; done; until [ -e `+end+` ]; do sleep 0.1; done`))
	b.dir = t.TempDir()
	path := filepath.Join(b.dir, "r.html")
	await(t, "the loss of a running job", func() bool {
		b.want(0, "report", job, "-o", "r.html")
		return strings.Contains(strings.Join(readPage(t, path).lines, "\n"), "loss")
	})
	contains(t, readPage(t, path).text, "running", "started")
	put(t, end, "", 0o644)
	b.want(0, "attach", job)
	b.want(0, "report", job, "-o", "r.html")
	contains(t, readPage(t, path).text, "done", "started", "exited with status 0")
	b.elsewhere().want(0, "report", "--hosts", file, job, "-o", "r.html")
	contains(t, readPage(t, path).text, "done", "command and versions:")

	silent := b.detach("--hosts", file, "--ps", "none", "true")
	b.want(0, "attach", silent)
	b.want(0, "report", silent, "-o", "silent.html")
	contains(t, readPage(t, filepath.Join(b.dir, "silent.html")).text, "--metric", "done")
	b.hostsGone(0)
}
