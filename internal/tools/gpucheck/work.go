package main

import (
	"fmt"

	"github.com/plx-run/plx/trainer/executor/gpu/kernels"
)

// work is one thing whose time is measured, by plx and by PyTorch: torch.py knows
// the kinds.
type work struct {
	Kind    kind              `json:"kind"`
	What    string            `json:"what"`
	Double  bool              `json:"double"`      // float64 instead of float32
	N       int               `json:"n,omitempty"` // bytes of a copy, elements of an addition, launches of a graph
	Product *kernels.Matrices `json:"product,omitempty"`
	Window  *kernels.Window   `json:"window,omitempty"`
	Filters int               `json:"filters,omitempty"`
}

type kind string

const (
	product        kind = "product"
	convolution    kind = "convolution"
	imageGradient  kind = "gradient of images"
	filterGradient kind = "gradient of filters"
	copyIn         kind = "copy to the GPU"
	copyOut        kind = "copy from the GPU"
	copyWithin     kind = "copy within the GPU"
	addition       kind = "addition"
	launches       kind = "launch"
	roundTrip      kind = "launch and wait"
	replay         kind = "replayed launch"
)

// sizes is the suite of products and convolutions. Quick ones suit a stand-in.
func sizes(quick bool) (all []work) {
	products := []kernels.Matrices{
		{Count: 1, M: 256, N: 256, K: 256}, {Count: 1, M: 1024, N: 1024, K: 1024}, {Count: 1, M: 4096, N: 4096, K: 4096},
		{Count: 1, M: 1024, N: 1024, K: 1024, TransA: true}, {Count: 1, M: 1024, N: 1024, K: 1024, TransB: true},
		{Count: 1, M: 64, N: 256, K: 1024}, {Count: 1, M: 96, N: 100, K: 784}, {Count: 1, M: 784, N: 100, K: 96, TransA: true},
		{Count: 1, M: 64, N: 64, K: 65536}, {Count: 64, M: 128, N: 128, K: 128}, {Count: 1, M: 2048, N: 8, K: 2048},
	}
	double := kernels.Matrices{Count: 1, M: 1024, N: 1024, K: 1024}
	windows, filters := []kernels.Window{square(32, 3, 32), square(32, 16, 16), square(32, 64, 56), square(16, 256, 14)}, []int{16, 32, 64, 256}
	if quick {
		products = []kernels.Matrices{{Count: 1, M: 33, N: 20, K: 40}, {Count: 2, M: 9, N: 8, K: 7, TransA: true}, {Count: 1, M: 5, N: 6, K: 7, TransB: true}}
		double = kernels.Matrices{Count: 1, M: 9, N: 9, K: 9}
		windows, filters = []kernels.Window{square(2, 3, 6)}, []int{4}
	}
	for _, p := range products {
		all = append(all, productOf(p, false))
	}
	all = append(all, productOf(double, true))
	for i, w := range windows {
		for _, k := range []kind{convolution, imageGradient, filterGradient} {
			what := fmt.Sprintf("%s, %d images of %d x %d x %d, %d filters of %d x %d", k, w.Batch, w.Channels, w.Height, w.Width, filters[i],
				w.KernelHeight, w.KernelWidth)
			all = append(all, work{Kind: k, What: what, Window: &w, Filters: filters[i]})
		}
	}
	return all
}

// square is a window of 3 x 3 over square images, which keeps their size.
func square(batch, channels, side int) kernels.Window {
	return kernels.Window{Batch: batch, Channels: channels, Height: side, Width: side, KernelHeight: 3, KernelWidth: 3, Stride: 1, Pad: 1}
}

func productOf(p kernels.Matrices, double bool) work {
	what := fmt.Sprintf("product, %d x %d x %d", p.M, p.K, p.N)
	if p.Count > 1 {
		what = fmt.Sprintf("%d products, %d x %d x %d", p.Count, p.M, p.K, p.N)
	}
	if p.TransA {
		what += ", left one transposed"
	}
	if p.TransB {
		what += ", right one transposed"
	}
	if double {
		what += ", float64"
	}
	return work{Kind: product, What: what, Double: double, Product: &p}
}

// moves are copies, an addition that memory bounds, and launches of almost nothing.
func moves(quick bool) []work {
	large, many := 256<<20, 100
	if quick {
		large, many = 64<<10, 5
	}
	mib := func(k kind, n int) work {
		return work{Kind: k, What: fmt.Sprintf("%s, %g MiB", k, float64(n)/(1<<20)), N: n}
	}
	return []work{
		mib(copyIn, large/4), mib(copyIn, large/4096), mib(copyOut, large/4), mib(copyOut, large/4096), mib(copyWithin, large),
		{Kind: addition, What: fmt.Sprintf("%s of %d numbers", addition, large/8), N: large / 8},
		{Kind: launches, What: "launch, one of many", N: many}, {Kind: roundTrip, What: string(roundTrip), N: 1},
		{Kind: replay, What: fmt.Sprintf("launch in a replayed graph of %d", many), N: many},
	}
}

// amount is what is done each time, and its unit.
func (w work) amount() (float64, string) {
	switch w.Kind {
	case product:
		p := w.Product
		return 2e-9 * float64(p.Count) * float64(p.M) * float64(p.N) * float64(p.K), "GFLOP"
	case convolution, imageGradient, filterGradient:
		v := w.Window // its results have the size of its images
		return 2e-9 * float64(v.Batch*w.Filters) * float64(v.Height*v.Width) * float64(v.Channels*v.KernelHeight*v.KernelWidth), "GFLOP"
	case copyIn, copyOut, copyWithin:
		return 1e-9 * float64(w.N), "GB"
	case addition:
		return 12e-9 * float64(w.N), "GB" // two numbers are read and one is written
	}
	return 0, ""
}
