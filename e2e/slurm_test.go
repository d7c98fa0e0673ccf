//go:build long

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plx-run/plx/internal/test/executable"
	"github.com/plx-run/plx/internal/test/patience"
	"github.com/plx-run/plx/internal/test/testhosts"
	"github.com/plx-run/plx/internal/test/testslurm"
)

// slurmBench is a Slurm cluster, with plx on its login node.
type slurmBench struct {
	*bench
	slurm *testslurm.Cluster
}

func newSlurmBench(t *testing.T, o testslurm.Options) *slurmBench {
	t.Helper()
	plx := testhosts.Binary(t, "github.com/plx-run/plx")
	c := testslurm.Start(t, o)
	return &slurmBench{bench: &bench{Cluster: c.Cluster, t: t, plx: plx, home: c.Home}, slurm: c}
}

func (b *slurmBench) in(t *testing.T) *slurmBench { return &slurmBench{b.bench.in(t), b.slurm} }

// login starts a command on the login node.
func (b *slurmBench) login(name string, args ...string) *running {
	b.t.Helper()
	return b.begin(b.slurm.Command(context.Background(), name, args...), append([]string{name}, args...))
}

// salloc starts plx inside a Slurm allocation.
func (b *slurmBench) salloc(flags string, args ...string) *running {
	b.t.Helper()
	return b.login("salloc", append(append(strings.Fields(flags), b.plx), args...)...)
}

// file writes an executable file into the shared home directory, and returns
// the file's path in it.
func (b *slurmBench) file(name, text string) string {
	b.t.Helper()
	if err := executable.Write(filepath.Join(b.home, name), []byte("#!/bin/bash\n"+text), 0o755); err != nil {
		b.t.Fatal(err)
	}
	return filepath.Join(b.slurm.HomeThere(), name)
}

// sbatch submits a script to Slurm. It returns the job's id and the path of
// its output file.
func (b *slurmBench) sbatch(flags, text string) (id, output string) {
	b.t.Helper()
	script := b.file("job.sh", text)
	args := append([]string{"--parsable", "--output=out-%j"}, append(strings.Fields(flags), script)...)
	id = b.slurm.Run("sbatch", args...)
	return id, filepath.Join(b.home, "out-"+id)
}

// idle fails the test unless every host runs no process other than Slurm's
// daemons.
func (b *slurmBench) idle() {
	b.t.Helper()
	if err := b.slurm.AwaitIdle(patience.Limit); err != nil {
		b.t.Error(err)
	}
}

// TestSlurm launches in Slurm allocations, on the GPUs and nodes of each
// allocation.
func TestSlurm(t *testing.T) {
	t.Parallel()
	b := newSlurmBench(t, testslurm.Options{Nodes: 2, GPUs: 2})
	t.Run("salloc", func(t *testing.T) {
		b := b.in(t)
		program := b.file("talk", `
seq 20000
echo "on $(hostname) gpu $CUDA_VISIBLE_DEVICES of $WORLD_SIZE step $SLURM_STEP_ID tasks ${SLURM_NTASKS-none} threads $OMP_NUM_THREADS"
[ "$RANK" = 0 ] || { sleep 0.2; exit 3; }
exec sleep 300`)
		res := b.salloc("-N2 --gres=gpu:1 --cpus-per-task=2", "launch", "--ps", "none", program).want(3)
		contains(t, res.stderr, " of Slurm, with 2 hosts", "worker:1 on h3 exited with status 3")
		for i, host := range []string{"h2", "h3"} {
			got := lines(res.stdout, "worker:"+string(rune('0'+i)))
			if len(got) != 20001 || !strings.HasPrefix(got[20000], "on "+host+" gpu 0 of 2 step ") || !strings.HasSuffix(got[20000], " tasks none threads 2") {
				t.Errorf("worker:%d printed %d lines, at last %q", i, len(got), got[max(0, len(got)-1):])
			}
		}
		b.idle()
	})
	t.Run("sbatch", func(t *testing.T) {
		b := b.in(t)
		program := b.file("ranks", "echo rank $RANK of $WORLD_SIZE on $(hostname)\n")
		id, output := b.sbatch("-N2 --ntasks-per-node=2", b.plx+" launch --ps none "+program+"\necho code $?\n")
		b.slurm.AwaitJob(id, "COMPLETED")
		text, err := os.ReadFile(output)
		if err != nil {
			t.Fatal(err)
		}
		contains(t, string(text), "rank 0 of 4 on h2", "rank 3 of 4 on h3", ": done", "code 0")
		res := b.login(b.plx, "logs", "slurm-"+id).want(0) // the allocation is over
		contains(t, res.stdout, "rank 0 of 4 on h2", "rank 3 of 4 on h3")
		b.idle()
	})
}
