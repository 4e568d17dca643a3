// Style sheets are bundled by the build, not typed: one that is imported as a text is its rules.
declare module "*.css" {
  const rules: string;
  export default rules;
}
