package checkpoint

import (
	"slices"
	"strings"
	"testing"

	"github.com/plx-run/plx/trainer/optimizer"
)

func TestFits(t *testing.T) {
	for _, test := range []struct {
		want   string // "" for fits
		change func(v []Variable, o *optimizer.Settings) []Variable
	}{
		{"", func(v []Variable, o *optimizer.Settings) []Variable { return v }},
		{"", func(v []Variable, o *optimizer.Settings) []Variable { slices.Reverse(v); return v }},
		{"", func(v []Variable, o *optimizer.Settings) []Variable {
			o.Decay, o.Decoupled, o.Epsilon = 0.1, true, 1
			return v
		}},
		{`variable "extra" is not in the checkpoint`, func(v []Variable, o *optimizer.Settings) []Variable {
			return append(v, Variable{Name: "extra", Dtype: "float32"})
		}},
		{`variable "w1" is not in the checkpoint`, func(v []Variable, o *optimizer.Settings) []Variable { return append(v, v[0]) }},
		{`variable "w2" is in the checkpoint and not in this program`, func(v []Variable, o *optimizer.Settings) []Variable { return slices.Delete(v, 1, 2) }},
		{`variable "w1" is float32 in the checkpoint and float64 in this program`, func(v []Variable, o *optimizer.Settings) []Variable { v[0].Dtype = "float64"; return v }},
		{`variable "w1" has shape [3 4] in the checkpoint and [4 3] in this program`, func(v []Variable, o *optimizer.Settings) []Variable { v[0].Shape = []int{4, 3}; return v }},
		{`variable "words" is sparse in the checkpoint and dense in this program`, func(v []Variable, o *optimizer.Settings) []Variable { v[2].Sparse = false; return v }},
		{`variable "mean" is updated by average with momentum 0.5 in the checkpoint and by the optimiser in this program`, func(v []Variable, o *optimizer.Settings) []Variable {
			v[3].Update, v[3].Momentum = "", 0
			return v
		}},
		{"optimiser: momentum in the checkpoint and adam in this program", func(v []Variable, o *optimizer.Settings) []Variable { o.Rule = optimizer.Adam; return v }},
		{"optimiser: momentum 0.9 in the checkpoint and 0.8 in this program", func(v []Variable, o *optimizer.Settings) []Variable { o.Momentum = 0.8; return v }},
		{"optimiser: nesterov false in the checkpoint and true in this program", func(v []Variable, o *optimizer.Settings) []Variable { o.Nesterov = true; return v }},
		{"optimiser: accumulator 0 in the checkpoint and 1 in this program", func(v []Variable, o *optimizer.Settings) []Variable { o.Accumulator = 1; return v }},
		{"optimiser: beta1 0 in the checkpoint and 0.5 in this program", func(v []Variable, o *optimizer.Settings) []Variable { o.Beta1 = 0.5; return v }},
		{"optimiser: beta2 0 in the checkpoint and 0.5 in this program", func(v []Variable, o *optimizer.Settings) []Variable { o.Beta2 = 0.5; return v }},
	} {
		opt := example().Optimizer
		variables := test.change(example().Variables, &opt)
		err := example().Fits(variables, opt)
		switch {
		case test.want == "" && err != nil:
			t.Errorf("does not fit: %v", err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), "checkpoint 000000000040-g1-5f3a9c1e: "+test.want)):
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}
