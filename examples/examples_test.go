// Package examples_test runs the examples as they are run: alone, and as the
// workers and servers of one job on this machine.
package examples_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/plx-run/plx/trainer/cluster"
)

// program is an example, built once per test as users build it.
func program(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-o", path, "./"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return path
}

// task is one process of a job and what it printed.
type task struct {
	cluster.Task
	listener *os.File // nil alone
	stdout   bytes.Buffer
	stderr   bytes.Buffer
	err      error
}

// run starts a program with so many servers and workers, or alone where there
// is no server, and returns what the chief printed. Every task must exit 0.
func run(t *testing.T, path string, servers, workers int, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tasks := []*task{{Task: cluster.Chief}}
	var contract cluster.Contract
	if servers > 0 {
		tasks, contract = job(t, servers, workers)
	}
	var ended sync.WaitGroup
	for _, k := range tasks {
		c := exec.CommandContext(ctx, path, arguments...)
		c.Stdout, c.Stderr = &k.stdout, &k.stderr
		c.Env = append(os.Environ(), "OMP_NUM_THREADS=1")
		if servers > 0 {
			contract.Task, contract.LocalRank, contract.ListenFD = k.Task, k.Index, 0
			if k.listener != nil {
				contract.ListenFD, c.ExtraFiles = 3, []*os.File{k.listener}
			}
			c.Env = append(c.Env, contract.Environ()...)
		}
		ended.Go(func() { k.err = c.Run() })
	}
	ended.Wait()
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

// job makes the contract of a job whose servers' sockets are open.
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

// After 50 steps the weights are those of one process with the whole batch,
// whatever the number of workers and servers.
func TestMLPWeightsDoNotDependOnWorkers(t *testing.T) {
	path, folder := program(t, "mlp"), t.TempDir()
	train := func(name string, servers, workers int) ([]float32, string) {
		file := filepath.Join(folder, name)
		out := run(t, path, servers, workers, "--niters=50", "--dim-in=256", "--n-classes=8", "--train-size=2000", "--save", file)
		return weights(t, file), out
	}
	want, line := train("alone", 0, 1)
	if !mlpLine.MatchString(line) {
		t.Errorf("the chief prints %q", line)
	}
	for _, c := range []struct {
		name             string
		servers, workers int
	}{{"1+1", 1, 1}, {"2+2", 2, 2}, {"1+4", 1, 4}, {"4+4", 4, 4}} {
		got, _ := train(c.name, c.servers, c.workers)
		if len(got) != len(want) {
			t.Fatalf("%s: %d weights, alone %d", c.name, len(got), len(want))
		}
		furthest := 0.0
		for i := range got {
			furthest = max(furthest, math.Abs(float64(got[i]-want[i])))
		}
		t.Logf("%s: weights differ by at most %.2g", c.name, furthest)
		if !(furthest <= 1e-5) {
			t.Errorf("%s: weights differ by %g", c.name, furthest)
		}
	}
}

// mlpLine is the exercise's line, byte for byte.
var mlpLine = regexp.MustCompile(`\A(step \d+ \| train_loss \d+\.\d{4} \| test_loss \d+\.\d{4} \| step time \d+\.\d{2}ms\n)+\z`)

func TestMLPPrintsEveryHundredthStep(t *testing.T) {
	out := run(t, program(t, "mlp"), 1, 2, "--niters=201", "--dim-in=64", "--dim-hidden=32", "--n-classes=4", "--train-size=1000")
	if !mlpLine.MatchString(out) {
		t.Fatalf("the chief prints %q", out)
	}
	var steps []string
	var test []float64
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		steps = append(steps, fields[1])
		loss, err := strconv.ParseFloat(fields[7], 64)
		if err != nil {
			t.Fatal(err)
		}
		test = append(test, loss)
	}
	if strings.Join(steps, " ") != "0 100 200" {
		t.Errorf("steps printed: %v", steps)
	}
	if test[2] > 0.7*test[0] {
		t.Errorf("the test loss does not fall: %v", test)
	}
}

// A batch that the workers cannot share equally is refused, by all of them.
func TestMLPRefusesAnUnevenBatch(t *testing.T) {
	path := program(t, "mlp")
	tasks, contract := job(t, 1, 3)
	contract.Task, contract.LocalRank, contract.ListenFD = tasks[1].Task, 0, 3
	c := exec.CommandContext(t.Context(), path, "--batch-size=64")
	c.ExtraFiles = []*os.File{tasks[1].listener}
	c.Env = append(os.Environ(), contract.Environ()...)
	out, err := c.CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("64 rows cannot be divided over 3 virtual workers")) {
		t.Errorf("got %v\n%s", err, out)
	}
}

func TestLinearFindsTheLine(t *testing.T) {
	path := program(t, "linear")
	alone := run(t, path, 0, 1)
	last := alone[strings.LastIndex(strings.TrimSpace(alone), "\n")+1:]
	if want := "step 199 | loss 0.000000 | W 0.9996 | b 0.0010\n"; last != want {
		t.Errorf("the last line is %q, want %q", last, want)
	}
	for _, workers := range []int{1, 3} {
		if got := run(t, path, 2, workers); got != alone {
			t.Errorf("%d workers print\n%salone it is\n%s", workers, got, alone)
		}
	}
}

// weights reads a file of examples/mlp's --save.
func weights(t *testing.T, path string) []float32 {
	t.Helper()
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := bytes.Cut(file, []byte("\n"))
	values := make([]float32, len(body)/4)
	if err := binary.Read(bytes.NewReader(body), binary.LittleEndian, values); err != nil {
		t.Fatal(err)
	}
	return values
}
