package spec

// schema is a piece of JSON Schema, schemas the shared ones by name.
type (
	schema  map[string]any
	schemas map[string]any
)

func (o *object[T]) describe(defs schemas) schema {
	return schema{"type": "object"}
}
