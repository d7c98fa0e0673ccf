// Package syntax reads PTX, the assembly language of NVIDIA devices, as clang
// prints it: text in, a Module out. It knows how a module is written and not
// what an instruction does.
//
//	module, err := syntax.Parse(text)
//	for _, f := range module.Functions {
//		fmt.Println(f.Name, len(f.Body))
//	}
//
// A name that is declared inside braces gets a unique name, so that a function
// has one flat list of registers and variables.
//
// It refuses what our compiler does not print: textures and surfaces, indirect
// calls, debug sections and vectors as variables. An error names the line.
package syntax

import "fmt"

// An Error is a mistake in the text, or something that this package refuses.
type Error struct {
	Line int
	What string
}

func (e *Error) Error() string { return fmt.Sprintf("ptx: line %d: %s", e.Line, e.What) }

// A Module is one file of PTX.
type Module struct {
	Version     string // such as 6.0
	Target      string // such as sm_70
	AddressSize int    // 64
	Variables   []Variable
	Functions   []*Function
}

// A Variable is a named piece of one state space.
type Variable struct {
	Name   string
	Space  string  // global, const, shared, local or param
	Type   string  // of one element, such as f32 or b8
	Align  int     // bytes
	Size   int     // bytes; zero if the launch decides
	Extern bool    // the launch decides the size, or another module has the variable
	Init   []Value // of the first elements
	Line   int
}

// A Value is one element of an initialiser: bits, or the address of a variable.
type Value struct {
	Bits   uint64
	Symbol string // variable whose address is added to Bits; empty for none
}

// A Register is a declared register.
type Register struct {
	Name string
	Type string // such as pred, b32 or f32
}

// A Function is a kernel or a device function.
type Function struct {
	Name       string
	Entry      bool // a kernel
	Defined    bool // it has a body
	Params     []Variable
	Returns    []Variable
	MaxThreads [3]uint32 // .maxntid or .reqntid; zero for no bound
	Registers  []Register
	Variables  []Variable // shared, local and param variables of the body
	Body       []Statement
	Line       int
}

// A Statement is a label or an instruction.
type Statement struct {
	Label    string // the other fields are empty then
	Guard    string // predicate register; empty for none
	Negate   bool   // the instruction runs where the guard is false
	Opcode   []string
	Operands []Operand
	Line     int
}

// Kind tells what an operand is.
type Kind uint8

// The kinds of operands.
const (
	Name    Kind = iota // a register, a variable or a label
	Integer             // Bits
	Float32             // Bits
	Float64             // Bits
	Address             // [Name+Offset], or [Offset]
	Vector              // {Parts}
	List                // (Parts)
	Pair                // Parts[0]|Parts[1]
)

// An Operand is one operand of an instruction.
type Operand struct {
	Kind   Kind
	Negate bool // !Name
	Name   string
	Bits   uint64
	Offset int64
	Parts  []Operand
}
