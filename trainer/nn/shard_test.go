package nn_test

import (
	"testing"

	"github.com/plx-run/plx/trainer/nn"
	"gorgonia.org/gorgonia"
)

// Two calls of Shard must return the same nodes, and the nodes' names must be
// reserved.
func TestShardScalars(t *testing.T) {
	_, err := nn.Build(1, func(b *nn.Builder) {
		id, of := nn.Shard(b)
		if again, all := nn.Shard(b); id == of || id != again || of != all || !id.IsScalar() {
			t.Errorf("the nodes are %v and %v", id, of)
		}
		b.Input("shard id", 1)
	})(gorgonia.NewGraph(), 4)
	if err == nil || err.Error() != `the name "shard id" is used twice: layers, inputs and variables need distinct names` {
		t.Errorf("got %v", err)
	}
}
