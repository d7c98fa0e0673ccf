package report

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/plx-run/plx/launcher/metrics"
)

var start = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// points returns n points with the values of f, one per interval of every
// seconds.
func points(n int, every float64, f func(i int) float64) (all []metrics.Point) {
	for i := range n {
		v := metrics.Number(f(i))
		all = append(all, metrics.Point{Step: int64(10 * i), Time: start.Add(time.Duration(float64(i) * every * float64(time.Second))), Last: v, Min: v, Max: v})
	}
	return all
}

// training returns a realistic run with 2 tasks and 2 GPUs on each of 4 hosts.
func training(seed, n int) Run {
	rnd := rand.New(rand.NewPCG(uint64(seed), 1))
	length := 2400.0 + 300*float64(seed%5)
	every := length / float64(n)
	code := 0
	run := Run{
		Job: fmt.Sprintf("20260304-0506%02d-ab%02x", seed, seed), Name: fmt.Sprintf("resnet-lr%d", seed), State: "done", Code: &code,
		Command: "python train.py --data /data/imagenet --model resnet50 --lr 0." + fmt.Sprint(seed+1), Created: start, Ended: start.Add(time.Duration(length+20) * time.Second),
		Verdict: "all 8 workers ended with status 0", Details: []string{"worker:0 saved 3 files to out/"},
		Facts: []Fact{{"hosts", "gpu01 gpu02 gpu03 gpu04"}, {"git commit", fmt.Sprintf("4f2a9c%02x", seed)}, {"git state", "clean"}, {"Python", "3.12.4"}, {"learning rate", fmt.Sprintf("0.%d", seed+1)}},
		Plan:  []string{"HOST   TASK      GPU", "gpu01  worker:0  0 NVIDIA H100 80GB", "gpu01  worker:1  1 NVIDIA H100 80GB", "gpu02  worker:2  0 NVIDIA H100 80GB"},
		Tails: []Tail{{"worker:0", "gpu01", []string{"epoch 9 loss 0.3121", "\x1b[32mdone\x1b[0m"}}},
	}
	for i := range 8 {
		task, host := fmt.Sprint("worker:", i), fmt.Sprint("gpu0", i/2+1)
		run.Events = append(run.Events, Event{start.Add(5 * time.Second), Started, host, task, "started"})
		base := 2 + 0.1*float64(seed) + rnd.Float64()*0.1
		loss := points(n, every, func(i int) float64 { return 0.3 + base*math.Exp(-4*float64(i)/float64(n)) + rnd.NormFloat64()*0.04 })
		for j := range loss {
			loss[j].Min, loss[j].Max = loss[j].Last-metrics.Number(rnd.Float64()*0.08), loss[j].Last+metrics.Number(rnd.Float64()*0.08)
		}
		run.Series = append(run.Series, Series{"loss", host, task, loss},
			Series{"steps_per_second", host, task, points(n, every, func(int) float64 { return 9.5 + rnd.NormFloat64()*0.3 })},
			Series{"tokens_per_second", host, task, points(n, every, func(int) float64 { return 125000 + rnd.NormFloat64()*3000 })})
		if i == 0 {
			run.Series = append(run.Series, Series{"lr", host, task, points(n, every, func(i int) float64 { return 3e-4 * (1 + math.Cos(math.Pi*float64(i)/float64(n))) / 2 })},
				Series{"val_loss", host, task, points(10, length/10, func(i int) float64 { return 0.4 + 2*math.Exp(-float64(i)/3) })},
				Series{"accuracy", host, task, points(10, length/10, func(i int) float64 { return 0.78 * (1 - math.Exp(-float64(i)/3)) })})
		}
	}
	for i := range 4 {
		host := fmt.Sprint("gpu0", i+1)
		series := func(name string, n int, f func(int) float64) {
			run.Series = append(run.Series, Series{Name: name, Host: host, Points: points(n, length/float64(n), f)})
		}
		series(CPU, n, func(int) float64 { return 24 + 6*rnd.Float64() })
		series(CPUs, 1, func(int) float64 { return 64 })
		series(Memory, n, func(i int) float64 { return (100 + 80*float64(i)/float64(n)) * (1 << 30) })
		series(Received, n, func(int) float64 { return (300 + 50*rnd.Float64()) * (1 << 20) })
		series(Sent, n, func(int) float64 { return (290 + 50*rnd.Float64()) * (1 << 20) })
		for g := range 2 {
			series(fmt.Sprint(GPU, "_", g), n, func(int) float64 { return 92 + 8*rnd.Float64() })
			series(fmt.Sprint(GPUMemory, "_", g), n, func(int) float64 { return (61 + rnd.Float64()) * (1 << 30) })
		}
	}
	at := func(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }
	for i := 1; i < 5; i++ {
		run.Events = append(run.Events, Event{at(length * float64(i) / 5), Checkpoint, "gpu01", "", fmt.Sprintf("checkpoint of step %d", i*100)})
	}
	run.Events = append(run.Events, Event{at(length * 0.5), Exited, "gpu03", "worker:5", "worker:5 ended with status 137"},
		Event{at(length*0.5 + 1), Exited, "gpu03", "worker:4", "worker:4 ended with status 143"}, // plx ended this task because another one had failed
		Event{at(length*0.5 + 9), Restarted, "", "", "generation 2 begins"}, Event{at(length), Ended, "", "", "the job has ended"})
	return run
}

// trainings returns n runs.
func trainings(n, points int) (runs []Run) {
	for i := range n {
		runs = append(runs, training(i, points))
	}
	return runs
}

// render returns a page as text and as parsed HTML.
func render(t testing.TB, runs []Run) (string, *html.Node) {
	t.Helper()
	var out bytes.Buffer
	if err := HTML(&out, runs); err != nil {
		t.Fatal(err)
	}
	tree, err := html.Parse(strings.NewReader(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), tree
}

// With PLX_REPORT_PAGES=folder in the environment, this test writes sample
// pages for inspection.
func TestWriteSamplePages(t *testing.T) {
	folder := os.Getenv("PLX_REPORT_PAGES")
	for _, n := range []int{1, 2, 20} {
		page, _ := render(t, trainings(n, 600))
		if folder == "" {
			continue
		}
		if err := os.WriteFile(fmt.Sprintf("%s/report%d.html", folder, n), []byte(page), 0o644); err != nil {
			t.Error(err)
		}
	}
}
