// Style sheets are bundled by the build, not typed.
declare module "*.css";
