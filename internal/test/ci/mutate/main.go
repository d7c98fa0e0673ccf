// Mutate tries how well the tests of a package bite. It changes the package in one
// place after the other, as somebody who makes a mistake would, and runs its tests
// against each: a change that no test notices has survived.
//
//	go run ./internal/test/ci/mutate ./trainer/wire
//	go run ./internal/test/ci/mutate -n 20 -run 'Test[A-M]' ./launcher/ssh
//	go run ./internal/test/ci/mutate -tests ./trainer/peers,./trainer/collective ./trainer/wire
//
// Some packages are tested by others beside them: see elsewhere. Flag -tests names the
// packages whose tests run.
//
// Which changes are tried follows from the commit's hash and the package, so that each
// commit tries others, and everybody who has the commit the same. No file of the tree
// is changed: the compiler reads the mutant's file in place of the package's. Mutants
// that do not compile are replaced by others.
//
// Gremlins, the best kept tool for this, copies the module for each run, tries every
// place that a test reaches and drops no statements: it has no way to choose fifty.
package main

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options are those of the command line.
type options struct {
	pkg   string
	n     int
	seed  string // the commit's hash unless it is given
	tests string // a pattern of tests; empty means all
	of    string // packages whose tests run, separated by commas; empty: the package's, or those of elsewhere
	short bool
	least int // per cent that are to be killed
}

// elsewhere are the packages that are tested by other packages too, or only by them. Those
// are tried in turn, the fastest first.
var elsewhere = map[string][]string{
	"./trainer/aggregate":         {"./trainer/aggregate", "./trainer/exchange/client"},
	"./trainer/exchange/server":   {"./trainer/exchange/client"},
	"./trainer/exchange/relay":    {"./trainer/exchange/client"},
	"./trainer/exchange/message":  {"./trainer/exchange/message", "./trainer/exchange/client"},
	"./trainer/executor/compile":  {"./trainer/executor/compile", "./trainer/executor"},
	"./trainer/executor/cpu":      {"./trainer/executor/cpu", "./trainer/executor"},
	"./launcher/agent/supervisor": {"./launcher/agent/supervisor", "./launcher/agent"},
}

// suites are the packages whose tests run.
func (o options) suites() []string {
	if o.of != "" {
		return strings.Split(o.of, ",")
	}
	if all := elsewhere[o.pkg]; all != nil {
		return all
	}
	return []string{o.pkg}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.IntVar(&o.n, "n", 50, "how many mutants are tried")
	flag.StringVar(&o.seed, "seed", "", "chooses the mutants in place of the commit's hash")
	flag.StringVar(&o.tests, "run", "", "run only tests with these names, as go test does")
	flag.StringVar(&o.of, "tests", "", "run the tests of these packages, separated by commas")
	flag.BoolVar(&o.short, "short", false, "run the tests with -short")
	flag.IntVar(&o.least, "least", 0, "exit with status 1 if fewer per cent than this are killed")
	flag.Parse()
	if flag.NArg() != 1 || o.n < 1 {
		fmt.Fprintln(os.Stderr, "mutate: want one package and at least one mutant, such as: mutate -n 50 ./hostfile")
		os.Exit(2)
	}
	o.pkg = flag.Arg(0)
	t, err := run(ctx, o, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if 100*t.killed < o.least*t.tried() {
		os.Exit(1)
	}
}

// tally counts mutants by what became of them.
type tally struct{ killed, survived, broken int }

func (t tally) tried() int { return t.killed + t.survived }

// run tries mutants of a package, and prints those that survive and a summary.
func run(ctx context.Context, o options, out io.Writer) (t tally, err error) {
	if o.seed == "" {
		commit, err := exec.CommandContext(ctx, "git", "rev-parse", "HEAD").Output()
		if err != nil {
			return t, fmt.Errorf("read the commit that chooses the mutants, else pass -seed: %w", err)
		}
		o.seed = strings.TrimSpace(string(commit))
	}
	b, err := newBench(ctx, o)
	if err != nil {
		return t, err
	}
	defer b.close()
	all, err := b.mutants()
	if err != nil {
		return t, err
	}
	seed := sha256.Sum256([]byte(o.seed + " " + b.path))
	random := rand.New(rand.NewChaCha8(seed))
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	began := time.Now()
	for _, m := range all {
		if t.tried() == o.n {
			break
		}
		fate, err := b.try(ctx, m)
		if err != nil {
			return t, err
		}
		switch fate {
		case broken:
			t.broken++
		case killed:
			t.killed++
		case survived:
			t.survived++
			fmt.Fprintf(out, "survived: %s\n", b.shown(m))
		}
	}
	if t.tried() == 0 {
		return t, fmt.Errorf("%s has no place that could be changed", b.path)
	}
	fmt.Fprintf(out, "%s at %.8s: %d of %d mutants killed (%d %%) of %d places, %d more did not compile, %.0f s\n", b.path, o.seed,
		t.killed, t.tried(), 100*t.killed/t.tried(), len(all), t.broken, time.Since(began).Seconds())
	return t, nil
}
