package e2e

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/testhosts"
)

// weights reads what examples/mlp --save wrote: a line of JSON, then the
// variables' float32 values, little-endian, in its order.
func weights(t *testing.T, path string) (names []string, values [][]float32) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r := bufio.NewReader(f)
	line, err := r.ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var header struct {
		Variables []struct {
			Name  string
			Shape []int
		}
	}
	if err := json.Unmarshal(line, &header); err != nil {
		t.Fatal(err)
	}
	for _, v := range header.Variables {
		n := 1
		for _, d := range v.Shape {
			n *= d
		}
		part := make([]float32, n)
		if err := binary.Read(r, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
		names, values = append(names, v.Name), append(values, part)
	}
	if _, err := r.ReadByte(); err != io.EOF || len(names) == 0 {
		t.Fatalf("%s: %d variables, and then %v", path, len(names), err)
	}
	return names, values
}

// distance is the largest difference of two sets of values.
func distance(t *testing.T, a, b string) float64 {
	t.Helper()
	namesA, valuesA := weights(t, a)
	namesB, valuesB := weights(t, b)
	if fmt.Sprint(namesA) != fmt.Sprint(namesB) {
		t.Fatalf("%v against %v", namesA, namesB)
	}
	var most float64
	for i := range valuesA {
		for j := range valuesA[i] {
			most = max(most, math.Abs(float64(valuesA[i][j]-valuesB[i][j])))
		}
	}
	return most
}

// After 50 steps, 1, 2x2 and 4 hosts have the weights of one process that
// sees the whole batch, whether servers or workers own them.
func TestTrainingIsThatOfOneProcess(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 4})
	mlp := testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp")
	shared := b.shared()
	flags := []string{"--niters", "50", "--train-size", "2000", "--save"}

	alone := filepath.Join(shared, "alone")
	cmd := exec.Command(mlp, append(flags, alone)...)
	cmd.Env = environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("alone: %v\n%s", err, out)
	}
	start := filepath.Join(shared, "start")
	cmd = exec.Command(mlp, "--niters", "0", "--train-size", "2000", "--save", start)
	cmd.Env = environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("no step: %v\n%s", err, out)
	}
	if d := distance(t, alone, start); d < 1e-2 {
		t.Fatalf("50 steps moved no weight by more than %g", d)
	}
	for name, lines := range map[string][]string{
		"1":   {"h1"},
		"2x2": {"h1: cpu*2", "h2: cpu*2"},
		"4":   {"h1", "h2", "h3", "h4"},
	} {
		for owner, arch := range map[string][]string{"worker": nil, "ps": {"--arch", "ps"}} {
			t.Run(name+" "+owner, func(t *testing.T) {
				b := b.in(t)
				path := filepath.Join(shared, owner+name)
				args := append([]string{"launch", "-v", "--hosts", b.ResourceFile(lines...), mlp}, append(flags, path)...)
				res := b.want(0, append(args, arch...)...)
				contains(t, res.stdout, "worker:0 h1 | step 0 | train_loss ")
				contains(t, res.stderr, `variable "w0" [1024 256]: dense, 1024 KiB, on `+owner+":0")
				d := distance(t, alone, path)
				t.Logf("largest difference %g", d)
				if d > 1e-5 {
					t.Errorf("weights differ by up to %g from one process's", d)
				}
				b.hostsGone(0)
			})
		}
	}
}

// A killed worker and a killed server end the run with an error that names
// them.
func TestLostPeerIsNamed(t *testing.T) {
	b := newBench(t, testhosts.Options{Hosts: 2})
	mlp := testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp")
	file := b.ResourceFile("h1", "h2")
	arch := map[string]string{"worker:1": "allreduce", "ps:1": "ps"}
	for task := range arch {
		t.Run(task, func(t *testing.T) {
			b.t = t
			r := b.start("launch", "--hosts", file, mlp, "--niters", "100000", "--arch", arch[task])
			r.await(r.stdout, "step 100 ")
			role, index, _ := strings.Cut(task, ":")
			b.killOne(b.Hosts[1], func(p testhosts.Process) bool {
				return slices.Contains(p.Environ, "PLX_ROLE="+role) && slices.Contains(p.Environ, "PLX_TASK_INDEX="+index)
			})
			res := r.want(137)
			if !strings.Contains(res.stderr, task+" on h2 was ended by signal 9") {
				t.Errorf("stderr does not name %s:\n%s", task, res.stderr)
			}
			b.hostsGone(0)
		})
	}
}

func TestEmbeddedCluster(t *testing.T) {
	b := local(t)
	mlp := testhosts.Binary(t, "github.com/plx-run/plx/examples/mlp")
	res := b.want(0, "launch", mlp, "--niters", "101", "--train-size", "2000")
	contains(t, res.stderr, "embedded cluster")
	if losses := trainLosses(t, res.stdout); len(losses) != 2 || losses[1] > 0.7*losses[0] {
		t.Errorf("losses %v in\n%s", losses, res.stdout)
	}
	res = b.want(0, "launch", "--local", "1x3", testhosts.Binary(t, "github.com/plx-run/plx/examples/linear"))
	if !strings.Contains(res.stdout, "worker:0") {
		t.Errorf("stdout:\n%s", res.stdout)
	}
}

// trainLosses are those that the chief of examples/mlp printed, every 100 steps.
func trainLosses(t *testing.T, stdout string) (losses []float64) {
	t.Helper()
	printed := lines(stdout, "worker:0")
	if len(printed) == 0 || !strings.HasPrefix(printed[0], "n-layers 4 | dim-in 1024 | ") {
		t.Fatalf("the chief does not begin with its configuration: %q", printed)
	}
	for i, line := range printed[1:] {
		var step int
		var loss float64
		if _, err := fmt.Sscanf(line, "step %d | train_loss %f", &step, &loss); err != nil || step != 100*i {
			t.Errorf("line %d is %q, want that of step %d: %v", i, line, 100*i, err)
		}
		losses = append(losses, loss)
	}
	return losses
}
