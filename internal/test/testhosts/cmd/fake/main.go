// Command fake imitates a user's training program that hangs. After a few
// steps the last worker hangs in the way that CAUSE names, while the other
// workers continue to the next step. The chief prints each step.
//
//	plx launch fake CAUSE             # trains with plx's trainer
//	plx launch fake --plain CAUSE     # exchanges bytes, without plx's trainer
//	plx launch fake --save [FOLDER]   # makes no steps, but writes checkpoints: see save
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/plx-run/plx/trainer"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

var (
	steps  = flag.Int("steps", 1000, "`steps` to take")
	once   = flag.Bool("once", false, "hang in the first generation only")
	late   = flag.Int("late", 5, "`step` before which the last worker hangs")
	refuse = flag.String("refuse", "", "why no checkpoint is made when asked for one")
	mute   = flag.Bool("mute", false, "never answer when asked for a checkpoint")
)

// others maps the program's first argument to the function that runs instead
// of a training with plx's trainer.
var others = map[string]func() error{"--plain": exchange, "--save": save}

func main() {
	if len(os.Args) < 2 || others[os.Args[1]] == nil {
		trainer.Main(train) // Main also parses the flags
		return
	}
	if err := flag.CommandLine.Parse(os.Args[2:]); err != nil {
		os.Exit(2)
	}
	if err := others[os.Args[1]](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		if errors.Is(err, io.EOF) {
			select {} // Wait forever: another task has failed, and plx must report that task as the cause.
		}
		os.Exit(1)
	}
}

// hangs maps each CAUSE to a function that hangs or panics in the way that
// CAUSE names.
var hangs = map[string]func(){
	"a server is stopped": func() {}, // the function does nothing, because the test itself stops a parameter server
	"select":              func() { select {} },
	"deadlock":            deadlock,
	"loader":              func() { <-loader() },
	"spins":               spin,
	"sleeps":              func() { time.Sleep(time.Hour) },
	"panics":              func() { go load(nil); select {} },
}

func deadlock() {
	var first, second sync.Mutex
	locked := make(chan bool)
	go func() {
		second.Lock()
		locked <- true
		first.Lock()
	}()
	first.Lock()
	<-locked
	second.Lock()
}

// loader returns a channel of batches on which no batch ever arrives.
func loader() <-chan []byte {
	batches, files := make(chan []byte), make(chan string)
	go func() {
		for name := range files {
			batches <- []byte(name)
		}
	}()
	return batches
}

func spin() {
	for n := uint64(1); ; n += 2 {
		if n == 0 { // never true, because n is odd
			return
		}
	}
}

// load panics if table is nil, which is a common mistake in Go programs.
func load(table map[string]int) { table["row"] = 1 }

// step does the work of step n. The last worker hangs in the step with the
// number *late.
func step(n int, last bool) error {
	hang, known := hangs[flag.Arg(0)]
	if !known {
		return fmt.Errorf("there is no cause %q", flag.Arg(0))
	}
	if last && n == *late {
		hang()
	}
	time.Sleep(50 * time.Millisecond) // stands for the work of a step
	return nil
}

// train trains a model with one weight.
func train(ctx context.Context, job *trainer.Job) error {
	feed := trainer.Feed{"x": tensor.New(tensor.WithShape(job.NumReplicasPerWorker(), 1), tensor.WithBacking(make([]float32, job.NumReplicasPerWorker())))}
	session, err := job.Parallelize(ctx, build, trainer.SGD(0.1), trainer.Config{GlobalBatch: job.NumShards()})
	if err != nil {
		return err
	}
	for n := session.Steps(); n < *steps; n++ {
		if err := step(n, job.WorkerID() == job.NumWorkers()-1 && !(*once && job.Generation() > 0)); err != nil {
			return err
		}
		if _, err := session.Step(ctx, feed); err != nil {
			return err
		}
		if job.IsChief() {
			fmt.Printf("step %d\n", n)
		}
	}
	return nil
}

func build(g *gorgonia.ExprGraph, batch int) (trainer.Model, error) {
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(batch, 1), gorgonia.WithName("x"))
	w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(1, 1), gorgonia.WithName("W"), gorgonia.WithInit(gorgonia.Ones()))
	loss, err := gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Mul(x, w)))))
	return trainer.Model{Inputs: gorgonia.Nodes{x}, Variables: gorgonia.Nodes{w}, Loss: loss}, err
}
