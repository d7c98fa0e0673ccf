package layout

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/cluster"
	"github.com/plx-run/plx/trainer/optimizer"
	"github.com/plx-run/plx/trainer/policy"
)

// placed returns the declaration mixed, placed on two servers.
func placed(t testing.TB) Declaration {
	d := mixed(6, 3)
	if err := d.AssignPieces(policy.Servers, 2, 0); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestCheck(t *testing.T) {
	for want, spoil := range map[string]func(d *Declaration){
		"start and silence":      func(d *Declaration) { d.SilenceMillis = 0 },
		"0 virtual workers":      func(d *Declaration) { d.VirtualWorkers = 0 },
		"70000 virtual workers":  func(d *Declaration) { d.VirtualWorkers = 70000 },
		"-1 metrics":             func(d *Declaration) { d.Metrics = -1 },
		"buckets of -1":          func(d *Declaration) { d.BucketBytes = -1 },
		"clipped at norm NaN":    func(d *Declaration) { d.Clip = math.NaN() },
		"clipped at norm -1":     func(d *Declaration) { d.Clip = -1 },
		`optimiser "?"`:          func(d *Declaration) { d.Optimizer.Rule = "?" },
		"4 of 6 are covered":     func(d *Declaration) { d.Workers = d.Workers[:2] },
		"range 1 is [2, 2)":      func(d *Declaration) { d.Workers = []Range{{0, 2}, {2, 2}, {2, 6}} },
		"range 0 is [1, 6)":      func(d *Declaration) { d.Workers = []Range{{1, 6}} },
		"names must be distinct": func(d *Declaration) { d.Variables[0].Name = "" },
		`variable "w": names`:    func(d *Declaration) { d.Variables[1].Name = "w" },
		`type "int"`:             func(d *Declaration) { d.Variables[0].Dtype = "int" },
		"shape [-3 -5]":          func(d *Declaration) { d.Variables[0].Shape = []int{-3, -5} },
		"shape [1099511627776":   func(d *Declaration) { d.Variables[0].Shape = []int{1 << 40, 1 << 40} },
		`update "adam"`:          func(d *Declaration) { d.Variables[0].Update = optimizer.Adam },
		"momentum is 1":          func(d *Declaration) { d.Variables[4].Momentum = 1 },
		"no statistics":          func(d *Declaration) { d.Variables[5].Update = optimizer.Average },
		`first values "sevens"`:  func(d *Declaration) { d.Variables[5].Sparse = &Sparse{First: RowInit{Kind: "sevens"}} },
		"have a shard holder":    func(d *Declaration) { d.Pieces = d.Pieces[1:] },
		"undeclared variable":    func(d *Declaration) { d.Pieces = append(d.Pieces, Piece{Variable: 9}) },
		"bad piece":              func(d *Declaration) { d.Pieces[0].Holder = 2 },
		"does not begin at a block": func(d *Declaration) {
			d.Pieces = append(d.Pieces, Piece{Variable: 2, Holder: 0, Offset: 1000, Count: 4120})
			for i, p := range d.Pieces {
				if p.Variable == 2 && p.Offset == 0 {
					d.Pieces[i].Count = 1000
				}
			}
		},
		"0 shard holders":      func(d *Declaration) { d.Holders, d.Pieces, d.Variables = nil, nil, nil },
		"named twice":          func(d *Declaration) { d.Holders[1] = d.Holders[0] },
		"no task of this job":  func(d *Declaration) { d.Holders[1] = worker(3) },
		"holds nothing":        func(d *Declaration) { d.Holders = append(d.Holders, server0(2)) },
		"want 1 to 3 groups":   func(d *Declaration) { d.Sync = parsed("group:4") },
		"0 to 2 backup":        func(d *Declaration) { d.Sync = parsed("backup:3") },
		"do not work together": func(d *Declaration) { d.Sync = parsed("backup:1") },
		"servers as shard holders only: a worker": func(d *Declaration) {
			d.Sync = parsed("async")
			d.Holders[1] = worker(0)
		},
		"workers of the hosts":    func(d *Declaration) { d.Hosts = []Range{{0, 2}} },
		"local aggregation works": func(d *Declaration) { d.Hosts, d.Sync = []Range{{0, 3}}, parsed("ssp:1") },
	} {
		d := placed(t)
		if err := d.Check(); err != nil {
			t.Fatal(err)
		}
		spoil(&d)
		if err := d.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestDifferenceIsDescribed(t *testing.T) {
	for want, change := range map[string]func(d *Declaration){
		`variable 1 is named "bias", not "b"`:     func(d *Declaration) { d.Variables[1].Name = "bias" },
		`variable "w" has shape [5 3], not [3 5]`: func(d *Declaration) { d.Variables[0].Shape = []int{5, 3} },
		`variable "w" is float64, not float32`:    func(d *Declaration) { d.Variables[0].Dtype = Float64 },
		`variable "w" is sparse, not dense`:       func(d *Declaration) { d.Variables[0].Sparse = &Sparse{} },
		`variable "table" has rows`:               func(d *Declaration) { d.Variables[5].Sparse = &Sparse{} },
		`variable "mean" is updated by`:           func(d *Declaration) { d.Variables[4].Momentum = 0.5 },
		"8 variables, not 7":                      func(d *Declaration) { d.Variables = append(d.Variables, Variable{Name: "x"}) },
		"another placement of the variables":      func(d *Declaration) { d.Pieces[0].Holder = 1 - d.Pieces[0].Holder },
		"shard holders [ps:1 ps:0]":               func(d *Declaration) { d.Holders = []cluster.Task{server0(1), server0(0)} },
		"Beta1:0.5":                               func(d *Declaration) { d.Optimizer.Beta1 = 0.5 },
		"loss kind sum, not mean":                 func(d *Declaration) { d.Sum = true },
		"global batch 24, not 12":                 func(d *Declaration) { d.Batch = 24 },
		"other timeouts":                          func(d *Declaration) { d.SilenceMillis = 1 },
		"2 workers, not 3":                        func(d *Declaration) { d.Workers = ranges(6, 2) },
		"virtual workers [{0 1}":                  func(d *Declaration) { d.Workers = []Range{{0, 1}, {1, 4}, {4, 6}} },
		"8 virtual workers, not 6":                func(d *Declaration) { d.VirtualWorkers = 8 },
		"synchronisation async, not sync":         func(d *Declaration) { d.Sync = parsed("async") },
		"clipped at 1, not 50":                    func(d *Declaration) { d.Clip = 1 },
		"norm of gradients reported":              func(d *Declaration) { d.Norm = true },
		"3 metrics, not 2":                        func(d *Declaration) { d.Metrics = 3 },
		"buckets of 1 bytes":                      func(d *Declaration) { d.BucketBytes = 1 },
		"same bits promised":                      func(d *Declaration) { d.Exact = true },
		"hosts with workers":                      func(d *Declaration) { d.Hosts = []Range{{0, 3}} },
	} {
		a, b := placed(t), placed(t)
		if got := a.Difference(&b); got != "" {
			t.Fatalf("equal ones differ: %s", got)
		}
		if change(&b); !strings.Contains(a.Difference(&b), want) {
			t.Errorf("got %q, want %q", a.Difference(&b), want)
		}
	}
}

func TestDeclarationSurvivesJSON(t *testing.T) {
	a := in("ssp:3", placed(t))
	a.Clip = 0
	body, err := json.Marshal(&a)
	if err != nil {
		t.Fatal(err)
	}
	var b Declaration
	if err := json.Unmarshal(body, &b); err != nil || a.Difference(&b) != "" || b.Check() != nil {
		t.Errorf("%v, %s, %v", err, a.Difference(&b), b.Check())
	}
}
