package checkpoint

import (
	"fmt"
	"slices"

	"github.com/plx-run/plx/trainer/optimizer"
)

// Fits returns why a program with these variables and this optimiser cannot
// resume from the checkpoint; nil: it can. The settings on which the optimiser's
// state depends must be equal. Decay, epsilon and the learning rate may differ,
// but then the training is not the one that was interrupted.
func (m *Manifest) Fits(variables []Variable, opt optimizer.Settings) error {
	saved := map[string]*Variable{}
	for i := range m.Variables {
		saved[m.Variables[i].Name] = &m.Variables[i]
	}
	for i := range variables {
		v := &variables[i]
		s := saved[v.Name]
		if s == nil {
			return fmt.Errorf("checkpoint %s: variable %q is not in it: it is of another program", m.ID, v.Name)
		}
		if what := s.difference(v); what != "" {
			return fmt.Errorf("checkpoint %s: variable %q %s", m.ID, v.Name, what)
		}
		delete(saved, v.Name)
	}
	for _, v := range m.Variables {
		if saved[v.Name] != nil {
			return fmt.Errorf("checkpoint %s: variable %q is in it and not in this program", m.ID, v.Name)
		}
	}
	if what := optimizerDifference(m.Optimizer, opt); what != "" {
		return fmt.Errorf("checkpoint %s: optimiser: %s", m.ID, what)
	}
	return nil
}

// difference returns in what v, of this program, differs from s; empty: in
// nothing.
func (s *Variable) difference(v *Variable) string {
	switch {
	case s.Dtype != v.Dtype:
		return fmt.Sprintf("is %s in it and %s in this program", s.Dtype, v.Dtype)
	case !slices.Equal(s.Shape, v.Shape):
		return fmt.Sprintf("has shape %v in it and %v in this program", s.Shape, v.Shape)
	case s.Sparse != v.Sparse:
		return fmt.Sprintf("is %s in it and %s in this program", density(s.Sparse), density(v.Sparse))
	case s.Update != v.Update || s.Momentum != v.Momentum:
		return fmt.Sprintf("is updated %s in it and %s in this program", updating(s), updating(v))
	}
	return ""
}

func density(sparse bool) string {
	if sparse {
		return "sparse"
	}
	return "dense"
}

func updating(v *Variable) string {
	if v.Update == "" {
		return "by the optimiser"
	}
	return fmt.Sprintf("by %s with momentum %v", v.Update, v.Momentum)
}

// optimizerDifference compares the settings on which the slots depend.
func optimizerDifference(s, opt optimizer.Settings) string {
	if s.Rule != opt.Rule {
		return fmt.Sprintf("%s in it and %s in this program", s.Rule, opt.Rule)
	}
	if s.Nesterov != opt.Nesterov {
		return fmt.Sprintf("nesterov %t in it and %t in this program", s.Nesterov, opt.Nesterov)
	}
	for _, number := range []struct {
		name       string
		saved, now float64
	}{
		{"momentum", s.Momentum, opt.Momentum}, {"accumulator", s.Accumulator, opt.Accumulator},
		{"beta1", s.Beta1, opt.Beta1}, {"beta2", s.Beta2, opt.Beta2},
	} {
		if number.saved != number.now {
			return fmt.Sprintf("%s %v in it and %v in this program", number.name, number.saved, number.now)
		}
	}
	return ""
}
