package ptx

import (
	"fmt"

	"github.com/plx-run/plx/internal/ptx/compile"
	"github.com/plx-run/plx/internal/ptx/device"
	"github.com/plx-run/plx/internal/ptx/scalar"
	"github.com/plx-run/plx/internal/ptx/syntax"
)

// Limits of a device.
const (
	mostThreads       = 1024
	mostStaticShared  = 48 << 10
	mostDynamicShared = 96 << 10 // with the static part
	mostParams        = 4096
)

// Options say what Parse accepts and what launches check.
type Options struct {
	Flush     bool   // accept .ftz
	Races     bool   // find races
	StepLimit uint64 // instructions that the warps of one launch may execute; zero means 1<<30
}

// A Module is compiled PTX.
type Module struct {
	options   Options
	kernels   map[string]*Kernel
	variables []syntax.Variable // in global and constant memory
	index     map[string]int    // of variables
}

// A Param is a parameter of a kernel.
type Param struct {
	Name                string
	Offset, Size, Align int // bytes
}

// Parse compiles a module. Launches of its kernels find all kinds of faults.
func Parse(source string) (*Module, error) {
	return Options{Races: true}.Parse(source)
}

// Parse compiles a module.
func (o Options) Parse(source string) (*Module, error) {
	parsed, err := syntax.Parse(source)
	if err != nil {
		return nil, err
	}
	if o.StepLimit == 0 {
		o.StepLimit = 1 << 30
	}
	m := &Module{options: o, kernels: map[string]*Kernel{}, index: map[string]int{}}
	for _, v := range parsed.Variables {
		if v.Space == "shared" {
			continue
		}
		if v.Extern || v.Size == 0 {
			return nil, &syntax.Error{Line: v.Line, What: "variable " + v.Name + " is not defined here"}
		}
		m.index[v.Name] = len(m.variables)
		m.variables = append(m.variables, v)
	}
	for _, f := range parsed.Functions {
		if !f.Entry || !f.Defined {
			continue
		}
		k, err := m.compile(parsed, f)
		if err != nil {
			return nil, err
		}
		m.kernels[f.Name] = k
	}
	return m, nil
}

// compile makes a kernel of a function.
func (m *Module) compile(parsed *syntax.Module, f *syntax.Function) (*Kernel, error) {
	k := &Kernel{module: m, name: f.Name, maxThreads: f.MaxThreads}
	s := compile.Settings{Scalar: scalar.Settings{Flush: m.options.Flush}, Globals: m.index, Params: map[string]int{}}
	for _, v := range f.Params {
		at := (k.paramBytes + v.Align - 1) / v.Align * v.Align
		k.params = append(k.params, Param{v.Name, at, v.Size, v.Align})
		k.paramBytes = at + v.Size
		s.Params[v.Name] = at
	}
	if k.paramBytes > mostParams {
		return nil, &syntax.Error{Line: f.Line, What: "the parameters have more than 4096 bytes"}
	}
	var err error
	k.program, err = compile.Kernel(parsed, f, s)
	return k, err
}

// Kernel finds a kernel by its name.
func (m *Module) Kernel(name string) (*Kernel, error) {
	k := m.kernels[name]
	if k == nil {
		return nil, fmt.Errorf("no kernel %q in the module", name)
	}
	return k, nil
}

// Global returns address and size of a variable in global or constant memory.
func (m *Module) Global(memory *Memory, name string) (address, size uint64, err error) {
	i, found := m.index[name]
	if !found {
		return 0, 0, fmt.Errorf("no variable %q in the module", name)
	}
	memory.Lock()
	defer memory.Unlock()
	regions, err := m.load(memory)
	if err != nil {
		return 0, 0, err
	}
	return regions[i].Base, regions[i].Size, nil
}

// load gives the module's variables their memory, once.
func (m *Module) load(memory *Memory) ([]*device.Region, error) {
	var sizes []int
	for _, v := range m.variables {
		sizes = append(sizes, v.Size)
	}
	regions, fresh, err := memory.Place(m, sizes)
	if err != nil {
		return nil, fmt.Errorf("load the variables of a module: %w", err)
	}
	if !fresh {
		return regions, nil
	}
	for i, v := range m.variables {
		if err := m.initialise(regions, i); err != nil {
			return nil, err
		}
		regions[i].Protect(v.Space == "const")
	}
	return regions, nil
}

// initialise writes the initialiser of a variable.
func (m *Module) initialise(regions []*device.Region, i int) error {
	v := m.variables[i]
	width := uint64(syntax.Width(v.Type))
	for n, value := range v.Init {
		if value.Symbol != "" {
			j, found := m.index[value.Symbol]
			if !found {
				return fmt.Errorf("variable %s: its initialiser names %q, which is no variable", v.Name, value.Symbol)
			}
			value.Bits += regions[j].Base
		}
		regions[i].Put(uint64(n)*width, width, value.Bits)
	}
	return nil
}
