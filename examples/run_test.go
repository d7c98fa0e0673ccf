// Package examples_test runs the example programs without plx, and as the
// workers and parameter servers of one job on this machine.
package examples_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"

	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
	"github.com/plx-run/plx/trainer/cluster"
)

// program builds an example, unless an earlier test has built it, and returns
// the path of the executable. With -short it skips the test.
func program(t *testing.T, name string) string {
	t.Helper()
	return testhosts.Binary(t, "github.com/plx-run/plx/examples/"+name)
}

// task is one process of a job, with its output.
type task struct {
	cluster.Task
	listener *os.File // nil alone
	folder   string   // working directory; empty means the test's own
	stdout   bytes.Buffer
	stderr   bytes.Buffer
	err      error
}

// alone runs a program without plx and returns its output.
func alone(t *testing.T, path string, arguments ...string) string {
	t.Helper()
	return start(t, path, []*task{{Task: cluster.Chief}}, cluster.Contract{}, arguments)
}

// run starts a program with the given numbers of parameter servers and
// workers, and returns the output of the chief, worker 0.
func run(t *testing.T, path string, servers, workers int, arguments ...string) string {
	t.Helper()
	tasks, contract := job(t, servers, workers)
	return start(t, path, tasks, contract, arguments)
}

// start runs all tasks of a job, or one task without a contract (plx's
// environment variables). Every task must exit with 0, and only the chief may
// print.
func start(t *testing.T, path string, tasks []*task, contract cluster.Contract, arguments []string) string {
	t.Helper()
	launch(t, path, tasks, contract, arguments)
	chief := ""
	for _, k := range tasks {
		if k.err != nil {
			t.Errorf("%s: %v\n%s", k.Task, k.err, k.stderr.String())
		}
		if k.Task == cluster.Chief {
			chief = k.stdout.String()
		} else if k.stdout.Len() > 0 {
			t.Errorf("%s prints, which is the chief's to do: %s", k.Task, k.stdout.String())
		}
	}
	return chief
}

// launch runs all tasks and waits until they have ended.
func launch(t *testing.T, path string, tasks []*task, contract cluster.Contract, arguments []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience.Limit)
	defer cancel()
	var ended sync.WaitGroup
	for _, k := range tasks {
		c := exec.CommandContext(ctx, path, arguments...)
		c.Stdout, c.Stderr, c.Dir = &k.stdout, &k.stderr, k.folder
		c.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
		if k.listener != nil {
			contract.Task, contract.LocalRank, contract.ListenFD = k.Task, k.Index, 3
			c.ExtraFiles = []*os.File{k.listener}
			c.Env = append(c.Env, contract.Environ()...)
		}
		ended.Go(func() { k.err = c.Run() })
	}
	ended.Wait()
}

// job returns the tasks and the contract of a job. The listening sockets of
// its parameter servers are already open.
func job(t *testing.T, servers, workers int) ([]*task, cluster.Contract) {
	t.Helper()
	secret := make([]byte, cluster.SecretSize)
	rand.Read(secret) // never fails
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(hex.EncodeToString(secret)), 0o600); err != nil {
		t.Fatal(err)
	}
	contract := cluster.Contract{Job: "example", SecretFile: file, WorldSize: workers, LocalWorldSize: workers}
	contract.Foreign.Threads = 1
	var tasks []*task
	for i := range servers {
		listener, address := listen(t)
		contract.Cluster.PS = append(contract.Cluster.PS, address)
		tasks = append(tasks, &task{Task: cluster.Task{Role: cluster.PS, Index: i}, listener: listener})
	}
	for i := range workers {
		listener, address := listen(t)
		contract.Cluster.Worker = append(contract.Cluster.Worker, address)
		tasks = append(tasks, &task{Task: cluster.Task{Role: cluster.Worker, Index: i}, listener: listener})
	}
	return tasks, contract
}

func listen(t *testing.T) (*os.File, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, l.Addr().String()
}

// series returns the numbers that follow a word on the program's lines; at
// least two.
func series(t *testing.T, out, word string) []float64 {
	t.Helper()
	found := numbers(t, out, `\b`+word+` ([^ \n]+)`)
	if len(found) < 2 {
		t.Fatalf("%d times %q in\n%s", len(found), word, out)
	}
	return found
}

// numbers returns the numbers that the pattern's group matches in the output;
// at least one.
func numbers(t *testing.T, out, pattern string) (found []float64) {
	t.Helper()
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(out, -1) {
		x, err := strconv.ParseFloat(match[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, x)
	}
	if len(found) == 0 {
		t.Fatalf("no %q in\n%s", pattern, out)
	}
	return found
}

// learns fails the test unless the loss falls below the fraction loss of the
// first loss, and the accuracy rises above accuracy. It compares means over
// the last half of the lines, because a single batch of one worker varies too
// much.
func learns(t *testing.T, out string, loss, accuracy float64) {
	t.Helper()
	losses, right := series(t, out, "loss"), series(t, out, "accuracy")
	t.Logf("loss %v, accuracy %v", losses, right)
	if !(mean(losses[(len(losses)+1)/2:]) <= loss*losses[0]) {
		t.Errorf("the loss is %v, want it to fall to %v of the first", losses, loss)
	}
	if !(mean(right[(len(right)+1)/2:]) >= accuracy) || right[0] >= accuracy {
		t.Errorf("the accuracy is %v, want it to rise to %v", right, accuracy)
	}
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}

var digestLine = regexp.MustCompile(`(?m)^digest step=\d+ sha256=[0-9a-f]{64}$`)

// digest returns the line that the chief prints with --digest.
func digest(t *testing.T, out string) string {
	t.Helper()
	found := digestLine.FindAllString(out, -1)
	if len(found) != 1 {
		t.Fatalf("%d digests in\n%s", len(found), out)
	}
	return found[0]
}
