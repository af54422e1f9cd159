package spec

import (
	"encoding/json"
	"slices"
)

// schema is a piece of JSON Schema, schemas the shared ones by name.
type (
	schema  map[string]any
	schemas map[string]any
)

// Schema is the JSON Schema (draft 2020-12) of pipeline files, for editors. It
// is made of the tables that Parse reads by: it accepts every valid file, and
// refuses each that has a wrong shape. What only the whole file can tell, such
// as a cycle in needs, it does not see.
func Schema() []byte {
	defs := schemas{}
	root := fileObject().describe(defs)
	b, err := json.MarshalIndent(schema{
		"$schema": "https://json-schema.org/draft/2020-12/schema",
		"title":   "Belay pipeline",
		"$ref":    root["$ref"],
		"$defs":   defs,
	}, "", "  ")
	if err != nil {
		// The tables hold nothing but texts and numbers, which a test checks.
		return nil
	}
	return append(b, '\n')
}

// describe adds the object to the shared schemas, and refers to it.
func (o *object[T]) describe(defs schemas) schema {
	ref := schema{"$ref": "#/$defs/" + o.def}
	if _, ok := defs[o.def]; ok {
		return ref
	}
	defs[o.def] = schema{} // it may be reached from below itself
	if len(o.forms) == 0 {
		defs[o.def] = o.shape(defs, objectForm{})
		return ref
	}
	forms := make([]any, len(o.forms))
	for i, f := range o.forms {
		if _, ok := defs[f.def]; !ok {
			defs[f.def] = o.shape(defs, f)
		}
		forms[i] = schema{"$ref": "#/$defs/" + f.def}
	}
	defs[o.def] = schema{"oneOf": forms}
	return ref
}

// shape is the schema of one form of the object.
func (o *object[T]) shape(defs schemas, f objectForm) schema {
	properties := schema{}
	var required []string
	for _, field := range o.fields {
		if f.form != 0 && field.forms != 0 && field.forms&f.form == 0 {
			continue
		}
		properties[field.name] = field.schema(defs)
		if field.required {
			required = append(required, field.name)
		}
	}
	if f.key != "" {
		required = append(required, f.key)
	}
	slices.Sort(required)
	out := schema{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = required
	}
	if o.free != "" {
		out["patternProperties"] = schema{"^" + o.free: true}
	}
	if o.extend != nil && f.form == o.extended {
		o.extend(defs, out)
	}
	return out
}
