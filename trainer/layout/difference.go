package layout

import (
	"fmt"
	"reflect"
	"slices"
)

// difference is where one declaration departs from another.
type difference struct{ d, other *Declaration }

func (x difference) String() string {
	d, other := x.d, x.other
	if a, b := len(d.Variables), len(other.Variables); a != b {
		return fmt.Sprintf("%d variables, not %d", b, a)
	}
	for i, v := range d.Variables {
		if what := v.difference(i, other.Variables[i]); what != "" {
			return what
		}
	}
	switch {
	case d.VirtualWorkers != other.VirtualWorkers:
		return fmt.Sprintf("%d virtual workers, not %d", other.VirtualWorkers, d.VirtualWorkers)
	case len(d.Workers) != len(other.Workers):
		return fmt.Sprintf("%d workers, not %d", len(other.Workers), len(d.Workers))
	case !slices.Equal(d.Workers, other.Workers):
		return fmt.Sprintf("virtual workers %v, not %v", other.Workers, d.Workers)
	case d.Sync.String() != other.Sync.String():
		return fmt.Sprintf("synchronisation %s, not %s", other.Sync, d.Sync)
	case !slices.Equal(d.Holders, other.Holders):
		return fmt.Sprintf("owners %v, not %v", other.Holders, d.Holders)
	case !slices.Equal(d.Pieces, other.Pieces):
		return "another placement of the variables on their owners"
	case d.Optimizer != other.Optimizer:
		return fmt.Sprintf("optimiser %+v, not %+v", other.Optimizer, d.Optimizer)
	case d.Checkpoint != other.Checkpoint:
		return fmt.Sprintf("begins %s, not %s", origin(other.Checkpoint), origin(d.Checkpoint))
	case d.First != other.First:
		return fmt.Sprintf("begins with step %d, not %d", other.First, d.First)
	case !slices.Equal(d.Cut, other.Cut):
		return fmt.Sprintf("begins with steps %v, not %v", other.Cut, d.Cut)
	}
	return x.numbers()
}

func (x difference) numbers() string {
	d, other := x.d, x.other
	switch {
	case d.Sum != other.Sum:
		return fmt.Sprintf("loss kind %s, not %s", lossKind(other.Sum), lossKind(d.Sum))
	case d.Batch != other.Batch:
		return fmt.Sprintf("global batch %d, not %d", other.Batch, d.Batch)
	case d.Clip != other.Clip:
		return fmt.Sprintf("gradients clipped at %v, not %v", other.Clip, d.Clip)
	case d.Norm != other.Norm:
		return fmt.Sprintf("norm of gradients reported: %t, not %t", other.Norm, d.Norm)
	case d.Metrics != other.Metrics:
		return fmt.Sprintf("%d metrics, not %d", other.Metrics, d.Metrics)
	case d.BucketBytes != other.BucketBytes:
		return fmt.Sprintf("buckets of %d bytes, not %d", other.BucketBytes, d.BucketBytes)
	case !slices.Equal(d.Hosts, other.Hosts):
		return fmt.Sprintf("hosts with workers %v, not %v", other.Hosts, d.Hosts)
	case d.Movable != other.Movable:
		return fmt.Sprintf("variables that can move: %t, not %t", other.Movable, d.Movable)
	case d.Exact != other.Exact:
		return fmt.Sprintf("same bits promised: %t, not %t", other.Exact, d.Exact)
	case d.Exact && d.Fingerprint != other.Fingerprint:
		return fmt.Sprintf("arithmetic %q, not %q: the same bits were promised, which takes hosts that compute alike",
			other.Fingerprint, d.Fingerprint)
	case d.Model != other.Model:
		return "a graph of other operations or shapes"
	case d.StartMillis != other.StartMillis || d.SilenceMillis != other.SilenceMillis:
		return "other timeouts"
	}
	return ""
}

func (v Variable) difference(i int, o Variable) string {
	switch {
	case v.Name != o.Name:
		return fmt.Sprintf("variable %d is named %q, not %q", i, o.Name, v.Name)
	case !slices.Equal(v.Shape, o.Shape):
		return fmt.Sprintf("variable %q has shape %v, not %v", v.Name, o.Shape, v.Shape)
	case v.Dtype != o.Dtype:
		return fmt.Sprintf("variable %q is %s, not %s", v.Name, o.Dtype, v.Dtype)
	case (v.Sparse == nil) != (o.Sparse == nil):
		return fmt.Sprintf("variable %q is %s, not %s", v.Name, o.density(), v.density())
	case !reflect.DeepEqual(v.Sparse, o.Sparse):
		return fmt.Sprintf("variable %q has rows %+v, not %+v", v.Name, *o.Sparse, *v.Sparse)
	case !reflect.DeepEqual(v.Workers, o.Workers):
		return fmt.Sprintf("variable %q has gradients of workers %v, not %v", v.Name, o.Workers, v.Workers)
	case v.Update != o.Update || v.Momentum != o.Momentum:
		return fmt.Sprintf("variable %q is updated by %q with momentum %v, not %q with %v", v.Name, o.Update, o.Momentum, v.Update, v.Momentum)
	}
	return ""
}

func (v Variable) density() string {
	if v.Sparse != nil {
		return "sparse"
	}
	return "dense"
}

func origin(checkpoint string) string {
	if checkpoint == "" {
		return "anew"
	}
	return fmt.Sprintf("from checkpoint %q", checkpoint)
}

func lossKind(sum bool) string {
	if sum {
		return "sum"
	}
	return "mean"
}
