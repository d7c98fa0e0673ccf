package nn

import (
	"slices"

	"gorgonia.org/gorgonia"
)

// Accuracy is the fraction of rows whose label has the largest logit. Of equal
// logits the first counts. The inputs are those of CrossEntropy. It has no
// gradient.
func Accuracy(logits, labels *gorgonia.Node) (*gorgonia.Node, error) {
	e, err := newEntropy("accuracy", logits, labels)
	if err != nil {
		return nil, err
	}
	o := &op{
		what:  e.what,
		out:   operand{dtype: e.dtype},
		run:   choose(e.dtype, accuracy[float32], accuracy[float64], e),
		fixed: 2,
	}
	return o.apply(logits, labels)
}

func accuracy[T float](e *entropy) kernel {
	return func(out gorgonia.Value, in []gorgonia.Value) error {
		right := 0
		for i := range e.rows {
			label := 0
			if e.class == nil {
				label = first(row[T](in[1], i, e.classes))
			} else {
				var err error
				if label, err = e.label(in[1], i); err != nil {
					return err
				}
			}
			if first(row[T](in[0], i, e.classes)) == label {
				right++
			}
		}
		data[T](out)[0] = T(float64(right) / float64(e.rows))
		return nil
	}
}

// first returns the index of the first of the largest elements.
func first[T float](x []T) int { return slices.Index(x, slices.Max(x)) }
